"""What the sandboxes and snapshots of a team occupy on the disk."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.host import tree_bytes

if TYPE_CHECKING:
    from atoll.supervisor.places import Places
    from atoll.supervisor.rows import SandboxRow
    from atoll.supervisor.table import Table
    from atoll.supervisor.works import Works

# A measure is good for so long, and for so many times as long as it took: asking often costs at most 5 % of a
# processor, however many files there are.
_FRESH_S = 5.0
_FRESH_TIMES = 20
# Who asks waits no longer; then the last measure counts, and nothing where there is none.
_WAIT_S = 2.0
_AWAKE = ("creating", "running", "paused")


@dataclass(frozen=True)
class _Measure:
    size_bytes: int
    at_s: float
    took_s: float
    changed_at: float


class TeamDisks:
    """Measures, as seldom as it may.

    A team's are the directories of its sandboxes, the memories of its snapshots, and the frozen layers that these
    stand on, each once, but for those that a snapshot of somebody else brings.

    Args:
        table: The sandboxes and snapshots.
        places: Where sandboxes lie.
        layers: Where frozen layers lie.
        works: Owner of the measuring.
    """

    def __init__(self, table: Table, places: Places, layers: Path, works: Works) -> None:
        self._table = table
        self._places = places
        self._layers = layers
        self._works = works
        self._sandboxes: dict[str, _Measure] = {}
        self._frozen: dict[str, int] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}

    async def bytes_of(self, team: str) -> int:
        """What a team occupies, as of some seconds ago."""
        if self._stale(team) or self._unknown(team):
            task = self._measuring.get(team)
            if task is None or task.done():
                task = self._measuring[team] = self._works.watch(self._measure(team))
            await asyncio.wait({task}, timeout=_WAIT_S)
        measures = (self._sandboxes.get(row.sandbox_id) for row in self._rows(team))
        snapshots = sum(row.memory_bytes for row in self._table.snapshots() if row.team == team)
        frozen = sum(self._frozen.get(layer_id, 0) for layer_id in self._layers_of(team))
        return snapshots + frozen + sum(measure.size_bytes for measure in measures if measure)

    async def _measure(self, team: str) -> None:
        for layer_id in self._unknown(team):
            self._frozen[layer_id], _ = await asyncio.to_thread(_measured, self._layers / layer_id)
        for row in self._stale(team):
            size_bytes, took_s = await asyncio.to_thread(_measured, self._places.sandbox(row.sandbox_id))
            self._sandboxes[row.sandbox_id] = _Measure(size_bytes, time.monotonic(), took_s, row.changed_at)
        living = {one.sandbox_id for one in self._table.all()}
        for gone in self._sandboxes.keys() - living:
            del self._sandboxes[gone]
        standing = {id_ for one in self._table.all() for id_ in one.row.stack}
        standing |= {id_ for row in self._table.snapshots() for id_ in row.stack}
        for dropped in self._frozen.keys() - standing:
            del self._frozen[dropped]

    def _rows(self, team: str) -> list[SandboxRow]:
        return [one.row for one in self._table.sandboxes() if one.row.team == team]

    def _stale(self, team: str) -> list[SandboxRow]:
        """The sandboxes that may have changed since they were measured."""
        now_s = time.monotonic()
        return [
            row for row in self._rows(team) if not _fresh(self._sandboxes.get(row.sandbox_id), row, now_s)
        ]

    def _unknown(self, team: str) -> list[str]:
        return [layer_id for layer_id in self._layers_of(team) if layer_id not in self._frozen]

    def _layers_of(self, team: str) -> set[str]:
        snapshots = self._table.snapshots()
        own = {id_ for row in self._rows(team) for id_ in row.stack}
        own |= {id_ for row in snapshots if row.team == team for id_ in row.stack}
        return own - {id_ for row in snapshots if row.team != team for id_ in row.stack}


def _fresh(measure: _Measure | None, row: SandboxRow, now_s: float) -> bool:
    if measure is None:
        return False
    if row.state not in _AWAKE and measure.changed_at == row.changed_at:
        return True  # nothing writes to it
    return now_s - measure.at_s <= max(_FRESH_S, _FRESH_TIMES * measure.took_s)


def _measured(path: Path) -> tuple[int, float]:
    began_s = time.thread_time()
    try:
        size_bytes = tree_bytes(path)
    except FileNotFoundError:  # killed, or dropped, just now
        size_bytes = 0
    return size_bytes, time.thread_time() - began_s
