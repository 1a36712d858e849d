"""Wakes sandboxes, whether they are paused, suspended or crashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.policy import check_alive
from atoll.supervisor.lifecycle.holds import is_left, keep_locked
from atoll.supervisor.state.leases import length_after_use
from atoll.supervisor.state.sandbox import Sandbox, crash_reason
from atoll.supervisor.state.transitions import check_action, check_parts, check_plugged, check_use
from atoll.types import Lifecycle

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.crash_recovery import CrashRecovery
    from atoll.supervisor.lifecycle.crashes import Crashes
    from atoll.supervisor.lifecycle.home_hooks import HomeHooks
    from atoll.supervisor.lifecycle.memory_admission import MemoryAdmission
    from atoll.supervisor.lifecycle.pause import Pauses
    from atoll.supervisor.lifecycle.restore import Restores
    from atoll.supervisor.lifecycle.start import Starts
    from atoll.supervisor.lifecycle.stop import PowerOff
    from atoll.supervisor.state.drain_gate import DrainGate
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns, Leases
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.tenants.quotas import TeamQuotas


@dataclass(kw_only=True, eq=False, repr=False)
class Wakes:
    """Wakes sandboxes."""

    inventory: Inventory
    leases: Leases
    quotas: TeamQuotas
    crashes: Crashes
    pauses: Pauses
    restores: Restores
    starts: Starts
    power_off: PowerOff
    crash_recovery: CrashRecovery
    gate: DrainGate
    admission: MemoryAdmission
    hooks: HomeHooks

    async def use(self, sandbox: Sandbox) -> RunningMachine:
        """Make the sandbox run so that it can be used, whether it is paused, suspended or crashed.

        Raises:
            AsleepError: The sandbox sleeps, and use does not wake it.
            UnpluggedError: The sandbox is unplugged.
            DelegationExpiredError: Its delegation has ended.
            DrainingError: It does not run, and the home is drained.
            QuotaError: The quota of its team allows no more running sandboxes.
            HostMemoryError: The host has too little memory left.
            SandboxCrashedError: It crashed, and stays so until a user resumes it or rolls it back.
        """
        async with sandbox.lock:
            check_action("wake", sandbox.row.state, sandbox.sandbox_id)
            check_plugged("use", sandbox)
            check_use(sandbox.row)
            running = await self._wake(sandbox, length_after_use(sandbox.row.lifecycle))
            await keep_locked(self.inventory, sandbox)
            return running

    def check(self, sandbox: Sandbox) -> None:
        """Refuse the use of a sandbox, awake or not, whose delegation has ended.

        Raises:
            DelegationExpiredError: It has ended.
        """
        row = sandbox.row
        check_alive(row.delegation, self.leases.clock.unix_s(), f"use sandbox {row.called}", row.sandbox_id)

    async def keep(self, sandbox: Sandbox) -> None:
        """Note that a client uses a sandbox that runs: it stays, even if it was left behind."""
        if is_left(sandbox):
            async with sandbox.lock:
                await keep_locked(self.inventory, sandbox)

    async def recover(self, sandbox: Sandbox) -> None:
        """Recover a sandbox without a use, if it still waits for that. Its lease goes on.

        Raises:
            QuotaError: The quota of its team allows no more running sandboxes.
            HostMemoryError: The host has too little memory left.
        """
        async with sandbox.lock:
            if waits_for_recovery(sandbox):
                await self._wake(sandbox, None, automatic=True)
                sandbox.untold = sandbox.row.recovered

    async def resume(
        self, sandbox: Sandbox, ttl_s: float | None = None, *, memory: bool = True, by_hand: bool = True
    ) -> RunningMachine:
        """Make the sandbox run because a client asked for exactly that.

        Args:
            ttl_s: Length of the new lease; None takes the lifecycle's. If the sandbox already runs, its lease
                is extended to this length.
            memory: False drops the checkpoint of a sleeping sandbox and boots from its disk.
            by_hand: Also recover a sandbox that stays crashed until a user resumes it.

        Raises:
            UnpluggedError: The sandbox is unplugged.
            DelegationExpiredError: Its delegation has ended.
            DrainingError: It does not run, and the home is drained.
            UnsupportedError: The engine keeps the disk in the memory to be dropped.
            QuotaError: The quota of its team allows no more running sandboxes, or no lease of this length.
            HostMemoryError: The host has too little memory left.
        """
        Lifecycle(ttl_s=ttl_s).check()
        async with sandbox.lock:
            if ttl_s is not None:
                self.quotas.check_lease(sandbox.row.team, Lifecycle(ttl_s=ttl_s))
            row = sandbox.row
            check_action("wake", row.state, sandbox.sandbox_id)
            check_plugged("wake", sandbox)
            if not memory:
                check_parts(sandbox.sandbox_id, engine_disk=row.engine_disk)
            length_s = row.lifecycle.ttl_s if ttl_s is None else ttl_s
            if ttl_s is not None and row.state == "running":
                await self.inventory.change(sandbox, **self.leases.extended(row, ttl_s))
            running = await self._wake(sandbox, length_s, by_hand=by_hand, memory=memory)
            await keep_locked(self.inventory, sandbox)
            return running

    async def _wake(
        self,
        sandbox: Sandbox,
        length_s: float | None,
        *,
        by_hand: bool = False,
        memory: bool = True,
        automatic: bool = False,
    ) -> RunningMachine:
        """Make the sandbox run. Unless it already runs, a lease of ``length_s`` begins."""
        self.check(sandbox)
        running = sandbox.running
        if running is not None and running.gone.is_set():
            await self.crashes.crashed_locked(sandbox, running, crash_reason(sandbox.row, running))
        columns = self.leases.woken(sandbox.row, length_s)
        if sandbox.row.state == "paused":
            with self.gate.passing():
                await self.pauses.thaw(sandbox, columns)
        elif sandbox.row.state in ("suspended", "crashed"):
            with self.gate.passing(), self.quotas.running(sandbox.row):
                async with self.admission.waking(sandbox.row, memory=memory):
                    check_plugged("wake", sandbox)  # it may have waited
                    before = sandbox.row.state
                    await self._revive(sandbox, columns, by_hand=by_hand, automatic=automatic, memory=memory)
                    self.hooks.after_wake(sandbox.row, before)
        return sandbox.require_running()

    async def _revive(
        self, sandbox: Sandbox, columns: Columns, *, by_hand: bool, automatic: bool, memory: bool
    ) -> None:
        row = sandbox.row
        if row.state == "crashed":
            await self.crash_recovery.revive(sandbox, columns, by_hand=by_hand, automatic=automatic)
        elif row.has_memory and memory:
            await self.restores.restore(sandbox, columns)
        else:
            if row.has_memory:
                await self.power_off.drop_memory(sandbox)
            await self.starts.boot(sandbox, columns)


def waits_for_recovery(sandbox: Sandbox) -> bool:
    """Whether a sandbox has crashed while it ran, and is to be recovered without a use."""
    row = sandbox.row
    waits = row.state == "crashed" and row.crashed_running and sandbox.unplugged is None
    return waits and row.lifecycle.recovers and row.on_crash != "stop"
