"""Suspends sandboxes: writes their memory to disk, or drops it, and frees their other resources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.engines import LatePages
from atoll.host import to_the_end
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.state.leases import NO_LEASE
from atoll.supervisor.state.transitions import check_action, check_parts, check_plugged

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.crashes import Crashes
    from atoll.supervisor.lifecycle.last_words import Farewells
    from atoll.supervisor.lifecycle.pause import Pauses
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.lifecycle.stop import PowerOff
    from atoll.supervisor.lifecycle.suspend_checkpoint import SuspendCheckpoints
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import OperationKind
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.types import SleepCause

# The time for data that came right before: only further data wakes a frozen guest.
_MOMENT_S = 0.05
Rest = Callable[[], Coroutine[Any, Any, None]]


@dataclass(kw_only=True, eq=False, repr=False)
class Suspends:
    """Puts sandboxes to sleep."""

    inventory: Inventory
    operations: Operations
    paths: Paths
    checkpoints: SuspendCheckpoints
    sandbox_planner: SandboxPlanner
    running_machines: RunningMachines
    sandbox_links: SandboxLinks
    crashes: Crashes
    pauses: Pauses
    power_off: PowerOff
    farewells: Farewells
    tasks: Tasks

    async def suspend(self, sandbox: Sandbox, *, memory: bool = True) -> None:
        """Write the sandbox's memory to disk and free its other resources.

        The memory is durable when this returns, the lease has ended, and the guest no longer runs or accepts
        connections. The machine ends after this returns; the next operation on the sandbox waits until then.

        Args:
            memory: False ends the processes instead and keeps only the disk.

        Raises:
            StateError: The sandbox has crashed, or its memory is not to be kept although it is unplugged.
            UnsupportedError: The engine keeps the disk in the memory, and the memory was not to be kept.

        Postcondition: on any exception the sandbox is as it was, or has crashed.
        """
        async with sandbox.lock:
            await self.suspend_locked(sandbox, memory=memory)

    async def suspend_locked(
        self, sandbox: Sandbox, *, memory: bool = True, cause: SleepCause = "request"
    ) -> None:
        """Do the work of ``suspend``, and store the cause. The caller holds the sandbox's lock."""
        check_action("suspend", sandbox.row.state, sandbox.sandbox_id)
        if not memory:
            check_parts(sandbox.sandbox_id, engine_disk=sandbox.row.engine_disk)
            # It would have to run, and its memory is kept for inspection.
            check_plugged("drop the memory of", sandbox)
        if sandbox.row.state == "suspended":
            if not memory and sandbox.row.has_memory:
                await self.power_off.drop_memory(sandbox)
        else:
            async with contextlib.AsyncExitStack() as under_way:
                kind: OperationKind = "suspend" if memory else "stop"
                await under_way.enter_async_context(self.operations.during(sandbox.sandbox_id, kind))
                wakes_at = await self.farewells.say(sandbox, cause)
                sleep = self._keep_memory if memory else self._stop
                rest = await sleep(sandbox, cause, wakes_at)
                sandbox.lock.outlast(self.tasks.spawn(_leave(rest, under_way.pop_all())))

    async def _keep_memory(self, sandbox: Sandbox, cause: SleepCause, wakes_at: float | None) -> Rest:
        running = sandbox.require_running()
        if sandbox.row.state == "running" and isinstance(running.machine, LatePages):
            await running.alive(running.machine.prepare(), sandbox.sandbox_id)
        await self.checkpoints.begin(sandbox)
        await self.fall_asleep(sandbox, cause=cause, wakes_at=wakes_at)
        return partial(self._end, sandbox, running)

    async def _stop(self, sandbox: Sandbox, cause: SleepCause, wakes_at: float | None) -> Rest:
        if sandbox.row.state != "paused":
            return await self.power_off.stop(sandbox, cause, wakes_at)
        paused = sandbox.row
        # The guest has to run for a moment to write its caches to the disk.
        await self.pauses.thaw(sandbox, {})
        try:
            return await self.power_off.stop(sandbox, cause, wakes_at)
        except BaseException:
            await to_the_end(self.pauses.freeze_again(sandbox, paused))
            raise

    async def fall_asleep(
        self,
        sandbox: Sandbox,
        *,
        briefly: bool = False,
        cause: SleepCause = "request",
        wakes_at: float | None = None,
    ) -> None:
        """Put a running or paused sandbox with a begun checkpoint to sleep. Its machine is left.

        Args:
            briefly: Keep the lease and the clients' connections, and make nothing durable. An exception is a
                disk that the engine keeps: it is in the checkpoint.
            cause: Why it sleeps.
            wakes_at: When it is to wake by itself, in Unix seconds.
        """
        durable = not briefly or sandbox.row.engine_disk
        running = sandbox.require_running()
        paused = sandbox.row.state == "paused"
        if not briefly:
            running.hang_up()
        running.link.hold()
        try:
            if not paused:
                if sandbox.row.lifecycle.wake_on_data and running.link.guest.is_fresh:
                    await asyncio.sleep(_MOMENT_S)
                await running.freeze()
            await running.alive(self.checkpoints.write(sandbox, running, durable=durable), sandbox.sandbox_id)
            # Until here the frozen guest could go on. From here on the checkpoint on the disk counts.
            more: Columns = {} if briefly else NO_LEASE
            await self.inventory.change(
                sandbox,
                durable=durable,
                state="suspended",
                napping=briefly,
                sleep_cause=cause,
                wakes_at=wakes_at,
                machine=None,
                machine_id=None,
                **more,
            )
        except BaseException:
            await to_the_end(self._undo(sandbox, running, paused=paused))
            if sandbox.row.state == "crashed":
                raise running.lost(sandbox.sandbox_id) from None
            raise
        sandbox.running, sandbox.link = None, running.link
        running.leave(hang_up=not briefly)

    async def _undo(self, sandbox: Sandbox, running: RunningMachine, *, paused: bool) -> None:
        running.link.release()
        if not paused:
            await thaw_or_end(running)
        if running.gone.is_set():
            why = "it ended while it was being suspended"
            await self.crashes.crashed_locked(sandbox, running, why)
        elif paused:
            self.pauses.watch(sandbox, running)
        await self.checkpoints.undo(sandbox)

    async def _end(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """End the machine of a sandbox that now sleeps. At the same time, compute its memory's checksums."""
        row = sandbox.row
        checkpoint = self.paths.checkpoint(row.sandbox_id)
        machines = self.running_machines
        await asyncio.gather(machines.end(running), machines.write_checksums(checkpoint, row.sandbox_id))
        await self.sandbox_links.let_go(sandbox)
        machines.prestarted_machines.expect(self.sandbox_planner.of(row))


async def _leave(rest: Rest, under_way: contextlib.AsyncExitStack) -> None:
    """Do the remaining work, then end the operation. Until then a restarted supervisor would finish it."""
    async with under_way:
        await rest()
