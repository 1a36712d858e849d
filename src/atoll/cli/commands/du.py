"""``atoll du``."""

from __future__ import annotations

import click

from atoll import Housekeeping
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.text import size, table
from atoll.types import DiskReport, DiskUse


@click.command(name="du", cls=Command)
@click.option("--team", metavar="TEAM", help="Only what this team has; without it, everything.")
@json_option
def command(team: str | None, as_json: bool) -> None:
    r"""Show what sandboxes, snapshots, images, templates, volumes and teams use on the disk.

    OWN is what erasing this one thing frees. SHARED is used by others too, such as a layer of a disk on which
    several sandboxes stand. The image below a sandbox is counted with the image, and a snapshot of a build
    with its template. Nothing is woken.

    \b
    Example:
      atoll du
      atoll du --team agents
    """
    report = Housekeeping.disk_use(team)
    if as_json:
        show_json(report)
        return
    teams = report.teams if any(use.team for use in report.teams) else []
    rows = [_row(use) for use in (*report.uses, *teams)]
    click.echo(table(["KIND", "ID", "NAME", "TEAM", "OWN", "SHARED"], rows))
    click.echo(_total(report))


def _row(use: DiskUse) -> list[str]:
    shown = use.id.removeprefix("sha256-")[:20] or "-"
    return [
        use.kind,
        shown,
        use.name or "-",
        use.team or "-",
        size(use.own_bytes),
        size(use.shared_bytes),
    ]


def _total(report: DiskReport) -> str:
    text = f"total {size(report.total_bytes)}"
    if report.leftover_bytes is not None:
        text += f"; `atoll gc --remove` frees {size(report.leftover_bytes)}"
    if report.free_bytes is not None:
        text += f"; {size(report.free_bytes)} of {size(report.disk_bytes)} are free"
    return text
