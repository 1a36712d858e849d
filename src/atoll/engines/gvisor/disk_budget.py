"""The part of a guest in gVisor that holds the budget of its disk."""

from __future__ import annotations

from atoll.engines.base import DiskGrowth
from atoll.engines.gvisor.limiting import limit_growth, watch_disk
from atoll.engines.gvisor.pausing import PausingControl


class GvisorDiskBudget:
    """See ``DiskBudget``. The machine sets its control socket."""

    _control: PausingControl

    async def mark_disk(self) -> None:
        """See ``DiskBudget.mark_disk``."""
        await self._control.call("containerManager.MarkDisk")

    async def watch_disk(self, event_fd: int) -> None:
        """See ``DiskBudget.watch_disk``."""
        await watch_disk(self._control, event_fd)

    async def limit_growth(self, growth: DiskGrowth | None, event_fd: int | None = None) -> None:
        """See ``DiskBudget.limit_growth``."""
        await limit_growth(self._control, growth, event_fd)
