"""Finds the sandboxes that only sleep, of which there may be very many."""

from __future__ import annotations

import os
from collections.abc import Iterable

from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.rows import SandboxRow


def undisturbed(rows: Iterable[SandboxRow], paths: Paths) -> set[str]:
    """Return the ids of sleeping sandboxes whose directories have everything they need, and nothing else.

    These sandboxes need no recovery. Pass only rows of sandboxes without an interrupted operation.
    """
    checkpoint = paths.checkpoint("").name
    files = (paths.console, paths.row, paths.decisions, paths.limits)
    may_be = {path("").name for path in files}
    return {row.sandbox_id for row in rows if _is_undisturbed(row, str(paths.sandboxes), checkpoint, may_be)}


def _is_undisturbed(row: SandboxRow, sandboxes: str, checkpoint: str, may_be: set[str]) -> bool:
    if row.state != "suspended" or row.engine_disk or row.napping or row.link_id is not None:
        return False
    try:
        names = set(os.listdir(f"{sandboxes}/{row.sandbox_id}"))
    except OSError:
        return False
    needed = {row.disk, checkpoint} if row.has_memory else {row.disk}
    return needed <= names <= needed | may_be
