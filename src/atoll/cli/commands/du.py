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

    OWN is the space that erasing this one thing frees. SHARED is the space that others use too, such as a
    layer below the disks of several sandboxes. The image below a sandbox counts with the image, and a build's
    snapshot with its template. This wakes no sandbox.

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
