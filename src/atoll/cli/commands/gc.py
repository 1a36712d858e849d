"""``atoll gc``."""

from __future__ import annotations

import click

from atoll import Supervisor
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.cli.text import size, table


@click.command(name="gc", cls=Command)
@click.option("--remove", is_flag=True, help="Remove what is found; without this, only show it.")
@json_option
def command(remove: bool, as_json: bool) -> None:
    r"""Show what a crash left behind: processes, mounts, directories and cgroups that nothing owns.

    \b
    Example:
      atoll gc
      atoll gc --remove
    """
    left = Supervisor.collect() if remove else Supervisor.leftovers()
    if as_json:
        show_json(left)
        return
    if not left:
        note("nothing is left behind")
        return
    click.echo(
        table(["KIND", "NAME", "SIZE"], [[item.kind, item.name, size(item.size_bytes)] for item in left])
    )
    note("removed" if remove else "remove it with: atoll gc --remove")
