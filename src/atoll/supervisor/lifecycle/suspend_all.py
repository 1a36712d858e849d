"""Suspends every sandbox of a home."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.protocol import SuspendedAll

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks


@dataclass(eq=False, repr=False)
class SuspendAll:
    """Suspends all sandboxes.

    Args:
        at_once: How many to suspend at the same time, so that a guest that does not answer holds up no other.
    """

    inventory: Inventory
    suspends: Suspends
    tasks: Tasks
    at_once: int

    async def run(self) -> SuspendedAll:
        """Suspend every sandbox that runs or is paused. A failure does not stop the others."""
        suspended: list[str] = []
        failed: dict[str, str] = {}
        slots = asyncio.Semaphore(self.at_once)

        async def one(sandbox: Sandbox) -> None:
            async with slots:
                try:
                    await self.tasks.run(self.suspends.suspend(sandbox))
                    suspended.append(sandbox.sandbox_id)
                except (AtollError, OSError) as error:
                    failed[sandbox.sandbox_id] = str(error)

        async with asyncio.TaskGroup() as group:
            for sandbox in self.inventory.sandboxes():
                if sandbox.row.state in ("running", "paused", "creating"):
                    group.create_task(one(sandbox))
        return SuspendedAll(suspended=suspended, failed=failed)
