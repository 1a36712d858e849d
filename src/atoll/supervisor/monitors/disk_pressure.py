"""Makes room when the home's file system is nearly full: drops replaceable data, then suspends sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.host import DiskUsage
    from atoll.supervisor.monitors.idle_sandboxes import IdleSandboxes
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

_LOOK_S = 10.0
# After a try, wait this long: to look for more room each time would cost more than it frees.
_AGAIN_S = 600.0
# The pressure is over only when clearly more is free, so that the next file does not bring it back.
_OVER = 1.2
# A memory that is written to a full disk must not fill it.
_SHARE_OF_FREE = 4
_log = logging.getLogger(__name__)

Step = tuple[str, Callable[[], Awaitable[object]]]


@dataclass(kw_only=True, eq=False, repr=False)
class DiskPressure:
    """Watches the free space of a home.

    Args:
        disk: Returns the size and the free space of the home's file system.
        low_percent: The file system is nearly full when less than this is free; 0 never looks.
        steps: The ways to free space without losing anything, in order, each with its description.
        tell: Writes a line into a sandbox's log.
        unix_s: Returns Unix seconds.
    """

    inventory: Inventory
    idle: IdleSandboxes
    tasks: Tasks
    disk: Callable[[], DiskUsage]
    low_percent: float
    steps: Sequence[Step]
    tell: Callable[[str, str], None]
    unix_s: Callable[[], float]
    _is_low: bool = field(default=False, init=False)
    _acted_s: float | None = field(default=None, init=False)

    def start(self) -> None:
        """Start to watch."""
        if self.low_percent:
            self.tasks.watch(self._watching())

    async def _watching(self) -> None:
        while True:
            try:
                await self.look()
            except (AtollError, OSError) as error:
                _log.warning("cannot make room on the disk: %s", error)
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Look once, and make room if there is too little."""
        disk = await asyncio.to_thread(self.disk)
        low_bytes = disk.total * self.low_percent / 100
        if disk.free >= low_bytes * (_OVER if self._is_low else 1):
            self._is_low, self._acted_s = False, None
            return
        if not self._is_low:
            self._is_low = True
            _log.warning("the disk of the home is nearly full: %s MiB are free", disk.free >> 20)
            for one in self.inventory.sandboxes():
                if one.row.state == "running":
                    self.tell(one.sandbox_id, "the host's disk is nearly full")
        await self.idle.note_traffic()
        now_s = self.unix_s()
        if self._acted_s is None or now_s - self._acted_s >= _AGAIN_S:
            self._acted_s = now_s
            for what, free in self.steps:
                if not await self._is_still_low(low_bytes):
                    return
                _log.info("to free space on the disk: %s", what)
                await self.tasks.run(_awaited(free))
        for sandbox in self.idle.found(paused=False):
            if await self._fits(sandbox):
                await self.idle.put_to_sleep(sandbox, "the host's disk is nearly full")

    async def _is_still_low(self, low_bytes: float) -> bool:
        return (await asyncio.to_thread(self.disk)).free < low_bytes * _OVER

    async def _fits(self, sandbox: Sandbox) -> bool:
        """Whether the sandbox's memory takes only a small part of the free space."""
        memory_bytes = self.idle.memory_bytes(sandbox)
        free_bytes = (await asyncio.to_thread(self.disk)).free
        return memory_bytes is not None and memory_bytes * _SHARE_OF_FREE <= free_bytes


async def _awaited(work: Callable[[], Awaitable[object]]) -> object:
    return await work()
