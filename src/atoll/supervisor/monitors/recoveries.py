"""Recovers crashed sandboxes that are not to wait for their next use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.lifecycle.crash_recovery import crashed_at, crashes_in_a_row
from atoll.supervisor.lifecycle.wake import waits_for_recovery
from atoll.supervisor.state.reasons import reason_of

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.wake import Wakes
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

_LOOK_S = 0.5
_AT_ONCE = 2
# The pause before each try in a row. A sandbox that keeps crashing then waits for its next use.
PAUSES_S = (0.0, 2.0, 10.0, 60.0, 300.0)
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class _Crash:
    """A crash that waits for its recovery, and how the tries went."""

    at: float
    since_s: float
    failures: int = field(default=0, init=False)
    error: str = field(default="", init=False)
    is_left: bool = field(default=False, init=False)
    going: bool = field(default=False, init=False)


@dataclass(kw_only=True, eq=False, repr=False)
class Recoveries:
    """Watches all sandboxes whose lifecycle has ``recovers`` in one task.

    Args:
        boot_s: A clock that never jumps.
        is_drained: Whether nothing may wake now, so that no try is wasted.
    """

    inventory: Inventory
    wakes: Wakes
    tasks: Tasks
    boot_s: Callable[[], float]
    is_drained: Callable[[], bool]
    _crashes: dict[str, _Crash] = field(default_factory=dict, init=False)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def waiting(self) -> bool:
        """Whether there is another try to come, so that the supervisor must stay."""
        return any(not crash.is_left for crash in self._crashes.values())

    def close(self) -> None:
        """Recover nothing any more: the next supervisor does."""
        self._closed = True

    async def run(self) -> None:
        """Watch until ``close``."""
        while not self._closed:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Look once at each sandbox, and begin the due recoveries."""
        if self.is_drained():
            self._crashes.clear()
            return
        now_s = self.inventory.now_s()
        waiting = {
            one.sandbox_id: one
            for one in self.inventory.sandboxes()
            if waits_for_recovery(one) and not one.row.has_ended(now_s)
        }
        for gone in self._crashes.keys() - waiting.keys():
            del self._crashes[gone]
        for sandbox_id, sandbox in waiting.items():
            crash = self._crashes.get(sandbox_id)
            if crash is None or crash.at != crashed_at(sandbox.row):
                crash = self._crashes[sandbox_id] = _Crash(crashed_at(sandbox.row), self.boot_s())
            self._look_at(sandbox, crash)

    def _look_at(self, sandbox: Sandbox, crash: _Crash) -> None:
        if crash.is_left or crash.going:
            return
        tries = crashes_in_a_row(sandbox.row) + crash.failures
        if tries >= len(PAUSES_S):
            crash.is_left = True
            self.tasks.spawn(self._leave(sandbox, crash))
        elif self.boot_s() >= crash.since_s + PAUSES_S[tries]:
            crash.going = True
            self.tasks.spawn(self._recover(sandbox, crash))

    async def _recover(self, sandbox: Sandbox, crash: _Crash) -> None:
        try:
            async with self._turn:
                if not self._closed:
                    await self.wakes.recover(sandbox)
        except (AtollError, OSError) as error:
            crash.failures += 1
            crash.since_s = self.boot_s()
            crash.error = reason_of(error)
            _log.warning("sandbox %s could not be recovered: %s", sandbox.sandbox_id, crash.error)
        finally:
            crash.going = False

    async def _leave(self, sandbox: Sandbox, crash: _Crash) -> None:
        """Leave it crashed, and say why."""
        why = f"it could not be recovered: {crash.error}" if crash.error else _AGAIN
        async with sandbox.lock:
            reason = sandbox.row.reason or ""
            if not waits_for_recovery(sandbox) or reason.endswith(why):
                return
            _log.warning("sandbox %s stays crashed: %s", sandbox.sandbox_id, why)
            await self.inventory.change(sandbox, reason=f"{reason}; {why}")


_AGAIN = f"it crashed soon after each of {len(PAUSES_S)} recoveries, so it waits for its next use"
