"""Ends leases and lifetimes when they are over, and sandboxes that clients have left behind."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.leases import JUMP_S, NO_LEASE, due_s
from atoll.supervisor.state.transitions import check_action, check_plugged
from atoll.types import Lifecycle

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.kill import Kills
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Leases, LeaseTable
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.tenants.quotas import TeamQuotas

# The event loop's clock stops while the host sleeps, so it never waits for longer than this.
_LOOK_S = 1.0
# Retry a sandbox that could not be ended, for example on a full disk, after this time.
_AGAIN_S = 10.0
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class LeaseExpiry:
    """Watches all leases and lifetimes of a home in one task.

    Args:
        tell: Writes a line into a sandbox's log.
    """

    inventory: Inventory
    leases: Leases
    due: LeaseTable
    quotas: TeamQuotas
    suspends: Suspends
    kills: Kills
    tasks: Tasks
    tell: Callable[[str, str], None]

    def start(self) -> None:
        """Start with all leases of the inventory, also those that ended while no supervisor ran."""
        for sandbox in self.inventory.sandboxes():
            self.due.note(sandbox.row)
        self.tasks.watch(self._watching())

    async def set_lease(self, sandbox: Sandbox, ttl_s: float | None, *, extend_only: bool = False) -> None:
        """Set the lease to end ``ttl_s`` seconds from now. A lease of 0 has ended when this returns.

        Args:
            ttl_s: None means no lease.
            extend_only: A lease that ends later, or never, stays.

        Raises:
            InvalidSpecError: ``ttl_s`` is not a valid length.
            StateError: The sandbox does not run, or is unplugged.
            QuotaError: The quota of its team does not allow a lease of this length.
        """
        self.quotas.check_lease(sandbox.row.team, Lifecycle(ttl_s=ttl_s).check())
        async with sandbox.lock:
            check_action("set the lease of", sandbox.row.state, sandbox.sandbox_id)
            check_plugged("set the lease of", sandbox)
            lengthen = self.leases.extended(sandbox.row, ttl_s)
            columns = lengthen if extend_only else self.leases.lasting(ttl_s)
            if columns:
                await self.inventory.change(sandbox, **columns)
            if self.leases.is_over(sandbox.row):
                await self._end_locked(sandbox)

    async def _watching(self) -> None:
        clock = self.leases.clock
        offset_s = math.inf
        while True:
            self.due.sooner.clear()
            for sandbox_id in self.due.take(clock.boot_s()):
                self._end_soon(sandbox_id)
            next_s = self.due.next_s()
            if next_s is not None and abs(clock.unix_s() - clock.boot_s() - offset_s) > JUMP_S:
                offset_s = clock.unix_s() - clock.boot_s()
                self.tasks.spawn(self._tell_calendar())
            now_s = clock.boot_s()
            wait_s = None if next_s is None else min(_LOOK_S, max(0.0, next_s - now_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.due.sooner.wait(), wait_s)

    def _end_soon(self, sandbox_id: str) -> None:
        with suppress(AtollError):
            sandbox = self.inventory.sandbox(sandbox_id)
            self.due.begin_end(sandbox_id)
            # Do not await this: a sandbox in the middle of an operation must not keep others running.
            self.tasks.spawn(self._end(sandbox))

    async def _end(self, sandbox: Sandbox) -> None:
        ended = False
        try:
            if self.leases.has_lived(sandbox.row):
                why = "its lifetime has ended" if sandbox.row.left_boot_s is None else "its clients are gone"
                _log.info("sandbox %s is killed: %s", sandbox.sandbox_id, why)
                await self.kills.kill(sandbox)
            else:
                # An operation in progress is not interrupted.
                async with sandbox.lock:
                    if self.leases.is_over(sandbox.row):
                        await self._end_locked(sandbox)
                    elif self.leases.sleeps(sandbox.row):
                        await self._leave_locked(sandbox)
            ended = True
        except (AtollError, OSError) as error:
            _log.warning("cannot end the lease of sandbox %s: %s", sandbox.sandbox_id, error)
        finally:
            due = due_s(sandbox.row)
            if due is not None and not ended:
                due = max(due, self.leases.clock.boot_s() + _AGAIN_S)
            self.due.end(sandbox.sandbox_id, due)

    async def _end_locked(self, sandbox: Sandbox) -> None:
        """End the lease as the sandbox's lifecycle says."""
        row, then = sandbox.row, sandbox.row.lifecycle.on_expiry
        _log.info("the lease of sandbox %s has ended: %s", sandbox.sandbox_id, then)
        if then == "kill":
            await self.kills.kill_locked(sandbox)
        elif row.state in ("running", "paused"):
            self.tell(sandbox.sandbox_id, f"its lease has ended: {then}")
            # If the engine keeps the disk, it is in the memory, so keep the memory too. A stop needs a
            # running guest, and the memory of an unplugged one is kept for inspection.
            memory = then == "suspend" or row.engine_disk or sandbox.unplugged is not None
            await self.suspends.suspend_locked(sandbox, memory=memory, cause="lease")
        elif row.state != "killed":
            # a crashed sandbox now waits for a use to recover it
            await self.inventory.change(sandbox, **NO_LEASE, crashed_running=False)

    async def _leave_locked(self, sandbox: Sandbox) -> None:
        """Put a sandbox to sleep whose clients are gone."""
        if sandbox.row.state in ("running", "paused"):
            self.tell(sandbox.sandbox_id, "was left behind by its clients: suspend")
            await self.suspends.suspend_locked(sandbox, cause="left")

    async def _tell_calendar(self) -> None:
        """Update the calendar times of leases after the calendar jumped: the next boot knows nothing else."""
        for sandbox in self.inventory.sandboxes():
            async with sandbox.lock:
                columns = self.leases.told(sandbox.row)
                if columns and sandbox.row.state != "killed":
                    await self.inventory.change(sandbox, **columns)
