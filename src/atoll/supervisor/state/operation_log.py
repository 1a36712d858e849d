"""The operation log: records the operations in progress on sandboxes, for crash recovery."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from atoll.errors import AtollError
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.journal import Journal
from atoll.supervisor.state.rows import OperationKind, OperationRow
from atoll.types import SandboxState

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Operations:
    """Records operations that have begun and not ended, with one row each.

    The rows of sandboxes and snapshots are the truth. These rows say where to look after the supervisor
    died.

    Args:
        clock: Returns Unix seconds.
    """

    database: Database
    journal: Journal
    clock: Callable[[], float]

    async def cut_short(self) -> list[OperationRow]:
        """The operations that the last supervisor's end interrupted.

        Call this before any operation begins.
        """
        return await self.database.all(OperationRow)

    @contextlib.asynccontextmanager
    async def during(
        self, sandbox_id: str, kind: OperationKind, *, link_id: str | None = None
    ) -> AsyncIterator[None]:
        """Record, inside the block, that this operation is in progress.

        The caller holds the sandbox's lock.
        """
        row = OperationRow(sandbox_id=sandbox_id, kind=kind, created_at=self.clock(), link_id=link_id)
        await self.database.put(row)
        try:
            yield
        finally:
            await self._forget(row)

    async def close(self, operation: OperationRow, state: SandboxState | None) -> None:
        """Log in a sandbox's log how an interrupted operation ended, and delete its row."""
        if state is not None:
            line = f"the supervisor ended during: {operation.kind}; the sandbox is {state}"
            self.journal.tell(operation.sandbox_id, line)
        await self._forget(operation)

    async def _forget(self, row: OperationRow) -> None:
        try:
            await self.database.delete(row, durable=False)
        except AtollError as error:
            # The next supervisor finds nothing to do for it.
            _log.warning("cannot delete the record of an ended operation: %s", error)
