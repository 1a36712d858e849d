"""Shows what sandboxes use, as tables: once, or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress

import click

from atoll import Housekeeping, Sandbox
from atoll.cli.model_options import budget_use_shown
from atoll.cli.output import show_json_line
from atoll.cli.sandboxes import asked
from atoll.cli.text import size, table
from atoll.errors import AtollError, SandboxNotFoundError
from atoll.types import SandboxStats

Used = dict[str, SandboxStats]
_HEAD = ("SANDBOX", "STATE", "CPU", "MEMORY", "LIMIT", "DISK", "PROCESSES", "RECEIVED", "SENT")
_EVERY_S = 2.0
_AGAIN = "\x1b[H\x1b[2J"


def used_by(sandboxes: Sequence[str]) -> Used:
    """Return the use of the named sandboxes, or of all.

    Without names, a sandbox killed meanwhile is left out.

    Raises:
        SandboxNotFoundError: One that was named is not there.
    """
    used = {}
    for ref in sandboxes or [info.name or info.sandbox_id for info in Sandbox.list()]:
        with nullcontext() if sandboxes else suppress(SandboxNotFoundError), asked(ref) as sandbox:
            used[ref] = sandbox.stats()
    return used


def shares(before: Used, now: Used, passed_s: float) -> dict[str, float]:
    """Return each sandbox's use of one processor between two looks, in percent, if known."""
    found = {}
    for ref, stats in now.items():
        earlier = before[ref].cpu_s if ref in before else None
        if earlier is not None and stats.cpu_s is not None and passed_s > 0:
            found[ref] = max(0.0, stats.cpu_s - earlier) / passed_s * 100  # waking begins the count anew
    return found


def host_shown() -> str:
    """Return a line on the host's memory; empty if the sandboxes are on a server, which does not tell."""
    try:
        memory = Housekeeping.host_memory()
    except AtollError:
        return ""
    short = ": the host is short of memory, and sandboxes give way" if memory.spare_bytes < 0 else ""
    return (
        f"\nhost: {size(memory.available_bytes)} of {size(memory.total_bytes)} of memory are available, "
        f"{size(memory.kept_free_bytes)} stay free{short}"
    )


def shown(used: Used, cpu: Mapping[str, float] | None = None) -> str:
    """Return a table. CPU is the processor time in all, or with ``cpu`` the percent of one processor now."""
    return table(_HEAD, [_row(ref, stats, cpu) for ref, stats in used.items()])


def models_shown(used: Used) -> list[str]:
    """Return a line for each sandbox with models: how far its budget is used."""
    return [
        f"models of {ref}: {budget_use_shown(stats.models)}" for ref, stats in used.items() if stats.models
    ]


def _row(ref: str, stats: SandboxStats, cpu: Mapping[str, float] | None) -> list[str]:
    if cpu is not None:
        busy = f"{cpu[ref]:.0f} %" if ref in cpu else "-"
    else:
        busy = "-" if stats.cpu_s is None else f"{stats.cpu_s:.1f} s"
    return [
        ref,
        stats.state,
        busy,
        size(stats.memory_bytes),
        size(stats.memory_limit_bytes),
        size(stats.disk_bytes),
        "-" if stats.processes is None else str(stats.processes),
        size(stats.received_bytes),
        size(stats.sent_bytes),
    ]


def watch(sandboxes: Sequence[str], *, busiest_first: bool, as_json: bool) -> None:
    """Show what sandboxes use every two seconds, until Ctrl-C. On a terminal, in the same place."""
    for used, cpu in _looks(sandboxes):
        if busiest_first:
            used = dict(sorted(used.items(), key=lambda item: (-cpu.get(item[0], -1.0), item[0])))
        if as_json:
            show_json_line(
                {ref: {"cpu_percent": cpu.get(ref), "stats": stats} for ref, stats in used.items()}
            )
        else:
            click.echo((_AGAIN if sys.stdout.isatty() else "") + shown(used, cpu) + host_shown())


def _looks(sandboxes: Sequence[str]) -> Iterator[tuple[Used, dict[str, float]]]:
    before: Used = {}
    at_s = time.monotonic()
    while True:
        used, now_s = used_by(sandboxes), time.monotonic()
        yield used, shares(before, used, now_s - at_s)
        before, at_s = used, now_s
        time.sleep(_EVERY_S)
