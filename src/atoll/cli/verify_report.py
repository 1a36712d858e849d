"""Shows the result of checking stored states, as text and as JSON."""

from __future__ import annotations

import click

from atoll.cli.output import show_json
from atoll.cli.text import plain, size, table
from atoll.types import VerifiedPart, VerifyReport


def show_report(report: VerifyReport, *, as_json: bool) -> None:
    """Print the checked parts, and below them each damaged file."""
    if as_json:
        show_json(report)
        return
    rows = [_row(part) for part in report.parts]
    click.echo(table(["KIND", "NAME", "STATE", "FILES", "SIZE", "NEEDED BY"], rows))
    for part in report.parts:
        for damage in part.damages:
            click.echo(f"damaged: {plain(part.path)}: {plain(damage.path)}: {plain(damage.what)}")
        if part.damaged > len(part.damages):
            click.echo(f"damaged: {plain(part.path)}: {part.damaged - len(part.damages)} more")


def _row(part: VerifiedPart) -> list[str]:
    state = "recorded now" if part.state == "recorded" else part.state
    return [part.kind, part.name, state, str(part.files), size(part.size_bytes), " ".join(part.needed_by)]
