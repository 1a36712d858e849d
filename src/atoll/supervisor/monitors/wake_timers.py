"""Wakes sleeping sandboxes at the times that programs inside have left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError, DrainingError, HostMemoryError, QuotaError
from atoll.supervisor.lifecycle.turns import Turns
from atoll.supervisor.state.reasons import reason_of

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.wake import Wakes
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

# The event loop's clock stops while the host sleeps, so it never waits for longer than this.
_LOOK_S = 0.5
# How many timed wakes run at once; wakes that clients wait for have their turns between these.
_AT_ONCE = 4
# A failed wake costs a restore. A forbidden wake costs nothing, and may be allowed at any moment.
PAUSES_S = (5.0, 15.0, 60.0, 300.0)
_FORBIDDEN_S = 10.0
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class _Due:
    """A wake that is due, and its tries."""

    wakes_at: float
    failures: int = field(default=0, init=False)
    again_s: float = field(default=0.0, init=False)
    going: bool = field(default=False, init=False)
    told: bool = field(default=False, init=False)


@dataclass(kw_only=True, eq=False, repr=False)
class WakeTimers:
    """Watches the times in the rows of all sleeping sandboxes in one task.

    Args:
        unix_s: The calendar.
        boot_s: A clock that never jumps.
        tell: Writes a line into a sandbox's log.
    """

    inventory: Inventory
    wakes: Wakes
    tasks: Tasks
    unix_s: Callable[[], float]
    boot_s: Callable[[], float]
    tell: Callable[[str, str], None]
    _due: dict[str, _Due] = field(default_factory=dict, init=False)
    _turns: Turns = field(default_factory=lambda: Turns(_AT_ONCE), init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def waiting(self) -> bool:
        """Whether a sandbox waits for its time, so that the supervisor must stay."""
        now_s = self.unix_s()
        return not self._closed and any(_is_set(one, now_s) for one in self.inventory.sandboxes())

    def close(self) -> None:
        """Wake no further sandbox: the next supervisor makes the due wakes."""
        self._closed = True

    async def run(self) -> None:
        """Watch until ``close``."""
        while not self._closed:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        now_s = self.unix_s()
        due = {
            sandbox.sandbox_id: sandbox
            for sandbox in self.inventory.sandboxes()
            if _is_set(sandbox, now_s) and (sandbox.row.wakes_at or 0.0) <= now_s
        }
        for gone in self._due.keys() - due.keys():
            del self._due[gone]
        for sandbox_id, sandbox in due.items():
            wakes_at = sandbox.row.wakes_at or 0.0
            known = self._due.get(sandbox_id)
            if known is None or known.wakes_at != wakes_at:
                known = self._due[sandbox_id] = _Due(wakes_at)
            if not known.going and self.boot_s() >= known.again_s:
                known.going = True
                self.tasks.watch(self._wake(sandbox, known))

    async def _wake(self, sandbox: Sandbox, due: _Due) -> None:
        try:
            async with self._turns.turn():
                if self._closed or not _is_set(sandbox, self.unix_s()):
                    return
                if sandbox.row.wakes_at != due.wakes_at:
                    return
                if not due.told:
                    self.tell(sandbox.sandbox_id, "wakes: the time has come that it has left in wake-at")
                due.told = True
                await self.tasks.run(self.wakes.use(sandbox))
        except (AtollError, OSError) as error:
            forbidden = isinstance(error, DrainingError | HostMemoryError | QuotaError)
            pause_s = _FORBIDDEN_S if forbidden else PAUSES_S[min(due.failures, len(PAUSES_S) - 1)]
            due.failures += not forbidden
            due.again_s = self.boot_s() + pause_s
            _log.warning(
                "sandbox %s cannot wake at its time, and tries again: %s",
                sandbox.sandbox_id,
                reason_of(error),
            )
        finally:
            due.going = False


def _is_set(sandbox: Sandbox, now_s: float) -> bool:
    """Whether a sandbox sleeps until a time, and may wake then."""
    row = sandbox.row
    asleep = row.wakes_at is not None and row.state in ("paused", "suspended") and not row.napping
    return asleep and sandbox.unplugged is None and not row.has_ended(now_s)
