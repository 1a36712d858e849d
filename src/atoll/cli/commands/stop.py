"""``atoll stop``."""

from __future__ import annotations

import click

from atoll import Supervisor
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json


@click.command(name="stop", cls=Command)
@click.option(
    "--force", is_flag=True, help="Stop it even if a sandbox cannot be suspended; that sandbox keeps running."
)
@json_option
def command(force: bool, as_json: bool) -> None:
    r"""Suspend every sandbox and stop the supervisor. The next use of atoll starts it again.

    \b
    Example:
      atoll stop
    """
    stopped = Supervisor.stop(force=force)
    if as_json:
        show_json({"stopped": stopped})
