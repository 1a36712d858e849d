"""Ends what sandboxes may do when their delegations end: they reach nothing any more, and sleep for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.state.clock import Clock
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

# The event loop's clock stops while the host sleeps, so it never waits for longer than this.
_LOOK_S = 0.5
# Retry a sandbox that could not be put to sleep, for example on a full disk, after this time.
_AGAIN_S = 10.0
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class DelegationExpiry:
    """Watches the delegations of all sandboxes of a home in one task.

    Args:
        tell: Writes a line into a sandbox's log.
    """

    inventory: Inventory
    egress: EgressControl
    suspends: Suspends
    tasks: Tasks
    clock: Clock
    tell: Callable[[str, str], None]
    _cut: set[str] = field(default_factory=set, init=False)
    _again_s: dict[str, float] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Watch. Never returns."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Look once at each sandbox."""
        now_s = self.clock.unix_s()
        over = {one.sandbox_id: one for one in self.inventory.sandboxes() if one.row.has_ended(now_s)}
        self._cut &= over.keys()
        for gone in self._again_s.keys() - over.keys():
            del self._again_s[gone]
        for sandbox_id, sandbox in over.items():
            if sandbox_id not in self._cut:
                self._cut.add(sandbox_id)
                # At once, whatever operation is in progress. A link that it gets later has none from the start.
                self.egress.enforce(sandbox)
            awake = sandbox.row.state in ("running", "paused")
            if awake and self.clock.boot_s() >= self._again_s.get(sandbox_id, 0.0):
                self._again_s[sandbox_id] = self.clock.boot_s() + _AGAIN_S
                # Do not await this: a sandbox in the middle of an operation must not keep others running.
                self.tasks.spawn(self._end(sandbox))

    async def _end(self, sandbox: Sandbox) -> None:
        try:
            async with sandbox.lock:
                if sandbox.row.state in ("running", "paused"):
                    _log.info("the delegation of sandbox %s has ended", sandbox.sandbox_id)
                    self.tell(sandbox.sandbox_id, "its delegation has ended: suspend")
                    await self.suspends.suspend_locked(sandbox, cause="delegation")
        except (AtollError, OSError) as error:
            _log.warning("sandbox %s, whose delegation has ended, runs on: %s", sandbox.sandbox_id, error)
