"""``atoll promote``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import held


@click.command(name="promote", cls=Command)
@sandbox_argument
@click.argument("fork", metavar="FORK")
@click.option("--keep-as", metavar="NAME", help="Name of the snapshot that keeps the sandbox's old state.")
@json_option
def command(sandbox: str, fork: str, keep_as: str | None, as_json: bool) -> None:
    r"""Continue a sandbox from the memory and disk of a fork, which ends.

    The sandbox keeps its id, name, addresses, policy and limits. A snapshot keeps its old state; this prints
    the snapshot's id. If this fails, both stay as they were.

    \b
    Example:
      atoll promote work work-2 --keep-as before-the-merge
    """
    with held(sandbox) as target, progress_shown() as report:
        kept = target.promote(fork, keep_as, on_progress=report)
    if as_json:
        show_json(kept)
    else:
        click.echo(kept.name or kept.snapshot_id)
