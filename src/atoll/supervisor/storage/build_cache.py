"""Remembers the template steps that were built before: their snapshots save building them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import StepRow

STEPS_MOST = 256
UNUSED_MOST_S = 30 * 86400.0


class BuildCache:
    """Maps each step to the snapshot that it led to.

    A step that was not used for 30 days is removed. If there are too many, the least recently used ones go.

    Args:
        database: The database, open before ``load``.
        clock: Returns Unix seconds.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._rows: dict[str, StepRow] = {}

    async def load(self) -> None:
        """Read the steps from the database."""
        self._rows = {row.step_key: row for row in await self._database.all(StepRow)}

    def __len__(self) -> int:
        return len(self._rows)

    def has(self, snapshot_id: str) -> bool:
        """Whether a step led to that snapshot."""
        return any(row.snapshot_id == snapshot_id for row in self._rows.values())

    async def first(self, keys: Iterable[str]) -> StepRow | None:
        """The first of these steps that was built before. It counts as used now."""
        found = next((self._rows[key] for key in keys if key in self._rows), None)
        if found is not None:
            found = msgspec.structs.replace(found, used_at=self._clock())
            await self._keep(found)
        return found

    async def add(self, step_key: str, snapshot_id: str) -> None:
        """Store the result of a step."""
        now_s = self._clock()
        await self._keep(StepRow(step_key=step_key, snapshot_id=snapshot_id, created_at=now_s, used_at=now_s))
        oldest = sorted(self._rows.values(), key=lambda row: row.used_at)
        await self._drop(oldest[: max(0, len(oldest) - STEPS_MOST)])

    async def forget(self, snapshot_id: str | None = None) -> None:
        """Forget the steps that led to a snapshot, or all steps if it is None."""
        await self._drop([row for row in self._rows.values() if snapshot_id in (None, row.snapshot_id)])

    async def tidy(self) -> None:
        """Forget steps unused for so long that their snapshots are not worth their space."""
        oldest_s = self._clock() - UNUSED_MOST_S
        await self._drop([row for row in self._rows.values() if row.used_at < oldest_s])

    async def _keep(self, row: StepRow) -> None:
        await self._database.put(row)
        self._rows[row.step_key] = row

    async def _drop(self, rows: list[StepRow]) -> None:
        if rows:
            await self._database.delete(*rows, durable=False)
            for row in rows:
                self._rows.pop(row.step_key, None)
