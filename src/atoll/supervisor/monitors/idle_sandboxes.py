"""Finds sandboxes that do nothing, and puts them to sleep when the host runs short of something."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.monitors.history import History
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.types import StatsSample

_IDLE_S = 60.0
_IDLE_PERCENT = 1.0
# To ask the kernel for the counters of one link takes some 50 µs, and all others wait meanwhile.
_AT_ONCE = 20
_log = logging.getLogger(__name__)


def is_idle(samples: Sequence[StatsSample], now_s: float) -> bool:
    """Whether a sandbox has used next to no processor for a minute. Without samples this is False."""
    recent = [sample for sample in samples if sample.at >= now_s - _IDLE_S]
    known = [sample.cpu_percent for sample in recent if sample.cpu_percent is not None]
    return (
        len(known) == len(recent) > 2
        and recent[0].at <= now_s - _IDLE_S / 2
        and all(percent < _IDLE_PERCENT for percent in known)
    )


@dataclass(kw_only=True, eq=False, repr=False)
class IdleSandboxes:
    """Knows which sandboxes have neither computed nor talked for a minute.

    Args:
        tell: Writes a line into a sandbox's log.
        unix_s: Returns Unix seconds.
    """

    inventory: Inventory
    history: History
    suspends: Suspends
    tasks: Tasks
    tell: Callable[[str, str], None]
    unix_s: Callable[[], float]
    _moved: dict[str, tuple[float, tuple[int, int]]] = field(default_factory=dict, init=False)

    async def note_traffic(self) -> None:
        """Note which sandboxes have traffic. Call this every few seconds, starting a minute early."""
        now_s, sandboxes = self.unix_s(), self.inventory.sandboxes()
        for gone in self._moved.keys() - {one.sandbox_id for one in sandboxes if one.running is not None}:
            del self._moved[gone]
        for number, one in enumerate(sandboxes):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if one.running is None:
                continue
            with contextlib.suppress(OSError):  # its link was closed just now
                counted = one.running.link.traffic()
                before = self._moved.get(one.sandbox_id)
                if before is None or before[1] != counted:
                    self._moved[one.sandbox_id] = (now_s, counted)

    def found(self, *, paused: bool) -> list[Sandbox]:
        """The idle sandboxes, the biggest first; with ``paused`` the paused ones too."""
        found = [one for one in self.inventory.sandboxes() if self._may_sleep(one, paused=paused)]
        return sorted(found, key=lambda one: -(self.memory_bytes(one) or 0))

    def memory_bytes(self, sandbox: Sandbox) -> int | None:
        """The memory of a sandbox when it was last measured."""
        samples = self.history.of(sandbox)
        return samples[-1].memory_bytes if samples else None

    async def put_to_sleep(self, sandbox: Sandbox, why: str) -> bool:
        """Suspend a sandbox that still does nothing. Returns whether it sleeps."""
        try:
            await self.tasks.run(self._suspend_if_idle(sandbox, why))
        except (AtollError, OSError) as error:
            _log.warning("cannot suspend the idle sandbox %s: %s", sandbox.sandbox_id, error)
        return sandbox.row.state == "suspended"

    async def _suspend_if_idle(self, sandbox: Sandbox, why: str) -> None:
        async with sandbox.lock:
            if self._may_sleep(sandbox, paused=True):  # it may have been used meanwhile
                self.tell(sandbox.sandbox_id, f"suspended: it is idle, and {why}")
                await self.suspends.suspend_locked(sandbox, cause="idle")

    def _may_sleep(self, sandbox: Sandbox, *, paused: bool) -> bool:
        """Whether a sandbox does nothing and the next use of it wakes it."""
        row, running, now_s = sandbox.row, sandbox.running, self.unix_s()
        if running is None or sandbox.unplugged is not None or not row.lifecycle.auto_resume:
            return False
        if row.state == "paused":
            return paused
        quiet_since_s, counted = self._moved.get(sandbox.sandbox_id, (now_s, None))
        return (
            row.state == "running"
            and (row.awake_until or 0.0) <= now_s
            and now_s - quiet_since_s >= _IDLE_S
            and running.link.traffic() == counted
            and is_idle(self.history.of(sandbox), now_s)
        )
