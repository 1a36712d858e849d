"""Unplugs sandboxes at the demand of their policies, or of a client that no supervisor had answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.unplug import Unplugs
    from atoll.supervisor.state.alarms import Alarms
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.tasks import Tasks

_LOOK_S = 1.0
_TRIES = 60


class UnplugMonitor:
    """Waits for alarms, and looks for marks.

    Args:
        inventory: The sandboxes.
        alarms: Rings when a rule wants a sandbox unplugged.
        unplugs: Unplugs it.
        tasks: Owner of the work.
    """

    def __init__(self, inventory: Inventory, alarms: Alarms, unplugs: Unplugs, tasks: Tasks) -> None:
        self._inventory = inventory
        self._alarms = alarms
        self._unplugs = unplugs
        self._tasks = tasks
        # Of now: the supervisor's start looks at all marks.
        self._seen = unplugs.marks_stamp()

    def start(self) -> None:
        """Begin to wait and to look, until the supervisor stops."""
        self._tasks.watch(self._hear())
        self._tasks.watch(self._look())

    async def _hear(self) -> None:
        while True:
            sandbox_id, reason = await self._alarms.next()
            # Do not await this: others must not wait for an operation in progress on this sandbox.
            self._tasks.watch(self._unplug(sandbox_id, reason))

    async def _unplug(self, sandbox_id: str, reason: str) -> None:
        for _ in range(_TRIES):
            try:
                sandbox = self._inventory.sandbox(sandbox_id)
            except AtollError:  # it is still being made, with its link already cut; or it was killed
                await asyncio.sleep(_LOOK_S)
                continue
            await self._tasks.run(self._unplugs.unplug(sandbox, reason))
            return

    async def _look(self) -> None:
        while True:
            # First, so that a mark that is written meanwhile is found the next time.
            if (stamp := self._unplugs.marks_stamp()) != self._seen:
                self._seen = stamp
                for sandbox in self._inventory.sandboxes():
                    if self._unplugs.heed(sandbox):
                        self._tasks.spawn(self._unplugs.settle(sandbox))
            await asyncio.sleep(_LOOK_S)
