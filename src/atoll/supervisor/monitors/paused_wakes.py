"""Wakes sandboxes that were paused for idleness when they get data from outside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks

if TYPE_CHECKING:
    from atoll.supervisor.state.running_machine import RunningMachine

_LOOK_S = 0.1
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PausedWakes:
    """Watches the counters of sandboxes that are paused because they were idle, and wakes one that gets data."""

    tasks: Tasks
    _watched: dict[str, _Watch] = field(default_factory=dict, init=False)
    _some: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def watch(self, sandbox: Sandbox, running: RunningMachine, received: int | None = None) -> None:
        """Watch a sandbox as long as it is paused on this running machine. An earlier watch of it ends.

        A sandbox paused by a client is not watched. ``received`` is the amount of data to count from. None
        takes the amount at the first look.
        """
        # A new one: the sandbox may have been thawed for a moment, which is no traffic.
        self._watched[sandbox.sandbox_id] = _Watch(sandbox, running, received)
        self._some.set()

    async def run(self, wake: Callable[[Sandbox], Awaitable[object]]) -> None:
        """Look at all watched sandboxes again and again, and call ``wake`` for each that gets traffic."""
        while True:
            await self._some.wait()
            await asyncio.sleep(_LOOK_S)
            for sandbox_id, watch in list(self._watched.items()):
                if not watch.lasts():
                    del self._watched[sandbox_id]
                elif watch.has_traffic():
                    del self._watched[sandbox_id]
                    self.tasks.spawn(self._wake(watch.sandbox, wake))
            if not self._watched:
                self._some.clear()

    async def _wake(self, sandbox: Sandbox, wake: Callable[[Sandbox], Awaitable[object]]) -> None:
        _log.info("sandbox %s wakes because of data from outside", sandbox.sandbox_id)
        try:
            await wake(sandbox)
        except (AtollError, OSError) as error:
            _log.info("sandbox %s is no longer watched for traffic: %s", sandbox.sandbox_id, error)


@dataclass(eq=False, repr=False)
class _Watch:
    """A paused sandbox, and how much it had received at the last look."""

    sandbox: Sandbox
    running: RunningMachine
    received: int | None

    def lasts(self) -> bool:
        """Whether the sandbox is still paused on the same machine, and because it was idle."""
        row = self.sandbox.row
        is_idle = row.state == "paused" and row.sleep_cause == "idle"
        return is_idle and self.sandbox.running is self.running

    def has_traffic(self) -> bool:
        """Whether the sandbox has received data since the last look. Acknowledgements and keepalives are none."""
        before, self.received = self.received, self.running.link.received_payload_bytes()
        return before is not None and self.received > before
