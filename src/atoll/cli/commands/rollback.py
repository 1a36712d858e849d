"""``atoll rollback``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held


@click.command(name="rollback", cls=Command)
@sandbox_argument
@click.argument("snapshot", metavar="SNAPSHOT")
@json_option
def command(sandbox: str, snapshot: str, as_json: bool) -> None:
    r"""Roll a sandbox's memory and disk back to one of its snapshots. Its id and name stay.

    Everything that happened in it since then is lost. If the rollback fails, the sandbox stays as it was.

    \b
    Example:
      atoll rollback work before-upgrade
    """
    with held(sandbox) as target:
        target.rollback(snapshot)
        info = target.info()
    if as_json:
        show_json(info)
    else:
        click.echo(info.name or info.sandbox_id)
