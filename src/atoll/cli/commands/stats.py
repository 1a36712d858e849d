"""``atoll stats``."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import click

from atoll import Sandbox
from atoll.cli.lazy import Command
from atoll.cli.limits import held_shown
from atoll.cli.options import complete_sandbox, json_option
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held
from atoll.cli.text import plain, size, table
from atoll.errors import SandboxNotFoundError
from atoll.types import SandboxStats

HEAD = ["SANDBOX", "STATE", "CPU", "MEMORY", "LIMIT", "DISK", "PROCESSES", "RECEIVED", "SENT"]


@click.command(name="stats", cls=Command)
@click.argument("sandboxes", metavar="[SANDBOX]...", nargs=-1, shell_complete=complete_sandbox)
@json_option
def command(sandboxes: tuple[str, ...], as_json: bool) -> None:
    r"""Show what sandboxes use. Without names, show all of them. This does not wake a sandbox.

    \b
    Example:
      atoll stats work
    """
    refs = sandboxes or tuple(info.name or info.sandbox_id for info in Sandbox.list())
    used = {}
    for ref in refs:
        # When all are shown, a sandbox that is killed meanwhile is skipped.
        with nullcontext() if sandboxes else suppress(SandboxNotFoundError), held(ref) as sandbox:
            used[ref] = sandbox.stats()
    if as_json:
        show_json(used)
        return
    click.echo(table(HEAD, [_row(ref, stats) for ref, stats in used.items()]))
    for ref, stats in used.items():
        click.echo(f"limits of {plain(ref)}: {held_shown(stats)}")


def _row(ref: str, stats: SandboxStats) -> list[str]:
    return [
        ref,
        stats.state,
        "-" if stats.cpu_s is None else f"{stats.cpu_s:.1f} s",
        size(stats.memory_bytes),
        size(stats.memory_limit_bytes),
        size(stats.disk_bytes),
        "-" if stats.processes is None else str(stats.processes),
        size(stats.received_bytes),
        size(stats.sent_bytes),
    ]
