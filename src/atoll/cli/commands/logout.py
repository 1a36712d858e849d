"""``atoll logout``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.sdk import Login


@click.command(name="logout", cls=Command)
@json_option
def command(as_json: bool) -> None:
    r"""Forget the server and its key, and use the sandboxes of this machine again.

    \b
    Example:
      atoll logout
    """
    was = Login.forget()
    if as_json:
        show_json({"logged_out": was})
    else:
        note("this machine's sandboxes are used again" if was else "no server was stored")
