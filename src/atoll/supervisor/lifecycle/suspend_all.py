"""Suspends every sandbox of a home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.protocol import SuspendedAll

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.tasks import Tasks


class SuspendAll:
    """Suspends all sandboxes.

    Args:
        registry: The sandboxes.
        suspends: Suspends each of them.
        tasks: Owner of the work, which goes on if the client leaves.
    """

    def __init__(self, registry: Registry, suspends: Suspends, tasks: Tasks) -> None:
        self._registry = registry
        self._suspends = suspends
        self._tasks = tasks

    async def run(self) -> SuspendedAll:
        """Suspend every sandbox that runs or is paused. One that fails does not keep the others."""
        suspended: list[str] = []
        failed: dict[str, str] = {}
        for sandbox in self._registry.sandboxes():
            if sandbox.row.state not in ("running", "paused", "creating"):
                continue
            try:
                await self._tasks.run(self._suspends.suspend(sandbox))
                suspended.append(sandbox.sandbox_id)
            except (AtollError, OSError) as error:
                failed[sandbox.sandbox_id] = str(error)
        return SuspendedAll(suspended=suspended, failed=failed)
