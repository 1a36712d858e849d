"""Wakes paused sandboxes that get traffic from outside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.registry import Sandbox
from atoll.supervisor.state.tasks import Tasks

if TYPE_CHECKING:
    from atoll.supervisor.machines.running_machine import RunningMachine

_LOOK_S = 0.1
# The kernel's own address lookups (ARP) have this length; a TCP segment with data is longer.
_NOISE_BYTES = 60
_log = logging.getLogger(__name__)


def wanted(before_bytes: int, now_bytes: int) -> bool:
    """Whether a guest received more between two looks than the kernel's own traffic."""
    return now_bytes - before_bytes > _NOISE_BYTES


class Traffic:
    """Watches the counters of paused sandboxes and wakes those that get traffic.

    Args:
        tasks: Owner of the watching.
        wake: Wakes a sandbox.
    """

    def __init__(self, tasks: Tasks, wake: Callable[[Sandbox], Awaitable[object]]) -> None:
        self._tasks = tasks
        self._wake = wake
        self._watches: dict[str, asyncio.Task[None]] = {}

    def watch(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch a sandbox as long as it is paused on this running machine. An earlier watch of it ends."""
        if before := self._watches.get(sandbox.sandbox_id):
            # The sandbox may have been thawed for a moment, which the earlier watch would take for traffic.
            before.cancel()
        watch = self._tasks.watch(self._watching(sandbox, running))
        self._watches[sandbox.sandbox_id] = watch
        watch.add_done_callback(partial(self._forget, sandbox.sandbox_id))

    def _forget(self, sandbox_id: str, watch: asyncio.Task[None]) -> None:
        if self._watches.get(sandbox_id) is watch:
            del self._watches[sandbox_id]

    async def _watching(self, sandbox: Sandbox, running: RunningMachine) -> None:
        # What comes before the first look belongs to the end of connections that the pause closed.
        before: int | None = None
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                if sandbox.row.state != "paused" or sandbox.running is not running:
                    return
                now, _ = running.link.traffic()
                if before is not None and wanted(before, now):
                    _log.info("sandbox %s wakes: it gets traffic", sandbox.sandbox_id)
                    await self._wake(sandbox)
                    return
                before = now
        except (AtollError, OSError) as error:
            _log.info("sandbox %s is not watched any more: %s", sandbox.sandbox_id, error)
