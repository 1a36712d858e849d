"""``atoll stats``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.limit_options import held_shown
from atoll.cli.options import complete_sandbox, json_option
from atoll.cli.output import show_json
from atoll.cli.text import plain
from atoll.cli.usage import host_shown, models_shown, shown, used_by, watch


@click.command(name="stats", cls=Command)
@click.argument("sandboxes", metavar="[SANDBOX]...", nargs=-1, shell_complete=complete_sandbox)
@click.option("-w", "--watch", "again", is_flag=True, help="Show it every two seconds until Ctrl-C.")
@json_option
def command(sandboxes: tuple[str, ...], again: bool, as_json: bool) -> None:
    r"""Show what sandboxes use. Without names, show all of them. This does not wake a sandbox.

    With --watch, CPU is the use of one processor since the last look. --watch --json prints a line
    with an object for each look.

    \b
    Example:
      atoll stats work
      atoll stats --watch
    """
    if again:
        watch(sandboxes, busiest_first=False, as_json=as_json)
        return
    used = used_by(sandboxes)
    if as_json:
        show_json(used)
        return
    click.echo(shown(used) + host_shown())
    for ref, stats in used.items():
        click.echo(f"limits of {plain(ref)}: {held_shown(stats)}")
    for line in models_shown(used):
        click.echo(plain(line))
