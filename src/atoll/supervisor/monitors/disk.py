"""Measures the disk of a running sandbox, so that its kernel can hold the limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.engines import DiskBudget
from atoll.errors import AtollError
from atoll.supervisor.machines.disk_budget import growth_left
from atoll.types import Limits

if TYPE_CHECKING:
    from atoll.host import TreeUse
    from atoll.snapshots import Layers
    from atoll.supervisor.state.running_machine import RunningMachine

# How often to look for growth that the guest's kernel cannot count: the host copies the image's files at
# their first change.
_LOOK_S = 10.0
# With the default limit, and more than this left, a disk is measured only when its kernel asks.
_NEAR_BYTES = 1 << 30
# Measuring takes at most this share of a processor. Only its own time counts: on a busy host a guest that waits for
# room must not wait the longer.
_SHARE = 0.1
_AGAIN_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class DiskMonitor:
    """Measures a running machine's disk whenever its kernel asks, and tells it the growth still allowed.

    Args:
        limits: Returns the sandbox's current limits.
        seldom: Whether its limit is now the default, which most sandboxes never come near.
    """

    running: RunningMachine
    budget: DiskBudget
    layers: Layers
    limits: Callable[[], Limits]
    seldom: Callable[[], bool] = lambda: False
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _limited: bool = field(default=False, init=False)
    _often: bool = field(default=False, init=False)
    _took_s: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Watch until the machine ends."""
        loop = asyncio.get_running_loop()
        event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(event_fd, self._asked, event_fd)
        try:
            while not await self._watched(event_fd):
                # Without this watch no limit would be enforced, and deleted files would never become free
                # space.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.running.limits_changed.wait(), _AGAIN_S)
        finally:
            loop.remove_reader(event_fd)
            os.close(event_fd)

    async def _watched(self, event_fd: int) -> bool:
        """Watch until something fails. Returns True if the machine is gone."""
        try:
            await self._watching(event_fd)
        except (AtollError, OSError) as error:
            if self.running.gone.is_set():
                return True
            if not self.running.leaving:  # otherwise it may be between two disks
                machine_id = self.running.machine.machine_id
                _log.warning("the disk of machine %s will be measured again soon: %s", machine_id, error)
        return False

    def _asked(self, event_fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(event_fd)
        self._wanted.set()

    async def _watching(self, event_fd: int) -> None:
        given: int | None = event_fd
        if self.seldom():
            await self.budget.watch_disk(event_fd)
            self._limited, self._often, given = True, False, None
            await self._any_wish()
        while True:
            self._wanted.clear()
            if await self._renew(given):
                given = None
            await asyncio.sleep(self._took_s / _SHARE if self._limited else 0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._any_wish(), _LOOK_S if self._often else None)

    async def _any_wish(self) -> None:
        changed = asyncio.ensure_future(self.running.limits_changed.wait())
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait({changed, wanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            wanted.cancel()
        self.running.limits_changed.clear()

    async def _renew(self, event_fd: int | None) -> bool:
        """Measure the disk and tell the guest's kernel. Returns whether the kernel was told any limit."""
        limits, budget = self.limits(), self.budget
        if limits.disk_mib is None and limits.files is None:
            if self._limited:
                await budget.limit_growth(None)
            self._limited = self._often = False
            return False
        await budget.mark_disk()
        use = await asyncio.to_thread(self._measured)
        growth = growth_left(limits, use)
        await budget.limit_growth(growth, event_fd)
        self._limited, self._often = True, not self.seldom() or growth.size_bytes < _NEAR_BYTES
        return True

    def _measured(self) -> TreeUse:
        began_s = time.thread_time()
        use = self.layers.use(self.running.disk)
        self._took_s = time.thread_time() - began_s
        return use
