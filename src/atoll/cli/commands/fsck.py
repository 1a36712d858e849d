"""``atoll fsck``."""

from __future__ import annotations

import click

from atoll import Housekeeping
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.text import plain, size, table
from atoll.exit_codes import code_of_answer
from atoll.types import VerifiedPart, VerifyReport


@click.command(name="fsck", cls=Command)
@click.option(
    "--repair", is_flag=True, help="Repair parts that have a second copy; without this, only report."
)
@json_option
@click.pass_context
def command(ctx: click.Context, repair: bool, as_json: bool) -> None:
    r"""Check everything that is stored: memories, layers, images, and the records of all of it.

    This reads all of it from the disk, while everything keeps running. It lists each damaged part with
    everything that needs it. --repair removes nothing. The exit code is 0 if nothing is lost, else 1.

    \b
    Example:
      atoll fsck
      atoll fsck --repair
    """
    with progress_shown() as progress:
        report = Housekeeping.fsck(repair=repair, on_progress=progress)
    if as_json:
        show_json(report)
    else:
        _show(report, repair=repair)
    ctx.exit(code_of_answer(report.whole))


def _show(report: VerifyReport, *, repair: bool) -> None:
    told = [part for part in report.parts if part.state in ("damaged", "repaired")]
    if told:
        click.echo(table(["KIND", "NAME", "STATE", "NEEDED BY"], [_row(part) for part in told]))
    for part in told:
        for damage in part.damages:
            click.echo(f"damaged: {plain(part.path)}: {plain(damage.path)}: {plain(damage.what)}")
    read = sum(part.size_bytes for part in report.parts)
    lost = sum(part.state == "damaged" for part in told)
    click.echo(f"{len(report.parts)} parts checked, {size(read)} read, {lost} damaged")
    if lost and not repair:
        click.echo("repair the parts that have a second copy: atoll fsck --repair")


def _row(part: VerifiedPart) -> list[str]:
    return [part.kind, part.name, part.state, " ".join(part.needed_by)]
