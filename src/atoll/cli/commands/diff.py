"""``atoll diff``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import asked
from atoll.cli.text import plain
from atoll.types import FileChange

_MARKS = {"added": "+", "removed": "-", "changed": "~"}


@click.command(name="diff", cls=Command)
@sandbox_argument
@click.argument("base", metavar="BASE")
@click.option("--path", "paths", metavar="PATH", multiple=True, help="Look only at this file or directory.")
@json_option
def command(sandbox: str, base: str, paths: tuple[str, ...], as_json: bool) -> None:
    r"""Show which files of a sandbox differ from those of another sandbox or of a snapshot.

    This wakes no sandbox.

    + is in SANDBOX only, - in BASE only, ~ differs. Times do not count.

    \b
    Example:
      atoll diff fork work
      atoll diff work before-upgrade --path /etc
    """
    with asked(sandbox) as target, progress_shown() as report:
        found = target.diff(base, paths=paths, on_progress=report)
    if as_json:
        show_json(found)
        return
    for change in found:
        click.echo(f"{_MARKS[change.change]} {plain(change.path)}{_detail(change)}")
    if found.truncated:
        click.echo("there may be more: narrow it with --path", err=True)


def _detail(change: FileChange) -> str:
    before, after = change.kind_before, change.kind_after
    if before and after and before != after:
        return f"  {before} -> {after}"
    if before == after == "file":
        same = change.bytes_before == change.bytes_after
        return (
            f"  {change.bytes_after} bytes"
            if same
            else f"  {change.bytes_before} -> {change.bytes_after} bytes"
        )
    size = change.bytes_before if after is None else change.bytes_after
    return f"  {size} bytes" if "file" in (before, after) else f"  {after or before}"
