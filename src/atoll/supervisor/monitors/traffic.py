"""Wakes paused sandboxes that get traffic from outside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks

if TYPE_CHECKING:
    from atoll.supervisor.state.running_machine import RunningMachine

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
        tasks: Owner of the wakes.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._watched: dict[str, _Watch] = {}
        self._some = asyncio.Event()

    def watch(self, sandbox: Sandbox, running: RunningMachine, received: int | None = None) -> None:
        """Watch a sandbox as long as it is paused on this running machine. An earlier watch of it ends.

        ``received`` is how much it had received when its traffic began to count. None is at the first look:
        what comes before belongs to the end of connections that the pause closed.
        """
        # A new one: the sandbox may have been thawed for a moment, which is no traffic.
        self._watched[sandbox.sandbox_id] = _Watch(sandbox, running, received)
        self._some.set()

    async def run(self, wake: Callable[[Sandbox], Awaitable[object]]) -> None:
        """Look at all watched sandboxes again and again, and call ``wake`` for those that get traffic."""
        while True:
            await self._some.wait()
            await asyncio.sleep(_LOOK_S)
            for sandbox_id, watch in list(self._watched.items()):
                if not watch.lasts():
                    del self._watched[sandbox_id]
                elif watch.has_traffic():
                    del self._watched[sandbox_id]
                    self._tasks.spawn(self._wake(watch.sandbox, wake))
            if not self._watched:
                self._some.clear()

    async def _wake(self, sandbox: Sandbox, wake: Callable[[Sandbox], Awaitable[object]]) -> None:
        _log.info("sandbox %s wakes because of traffic", sandbox.sandbox_id)
        try:
            await wake(sandbox)
        except (AtollError, OSError) as error:
            _log.info("sandbox %s is no longer watched for traffic: %s", sandbox.sandbox_id, error)


class _Watch:
    """A paused sandbox, and how much it had received at the last look."""

    def __init__(self, sandbox: Sandbox, running: RunningMachine, received: int | None) -> None:
        self.sandbox = sandbox
        self._running = running
        self._before = received

    def lasts(self) -> bool:
        """Whether the sandbox is still paused on the same machine."""
        return self.sandbox.row.state == "paused" and self.sandbox.running is self._running

    def has_traffic(self) -> bool:
        """Whether the sandbox has received anything since the last look."""
        before, (self._before, _) = self._before, self._running.link.traffic()
        return before is not None and wanted(before, self._before)
