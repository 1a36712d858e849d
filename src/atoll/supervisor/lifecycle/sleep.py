"""Pauses, suspends, resumes and wakes sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.engines import MachineEndedError
from atoll.errors import AtollError, DamagedError, SandboxCrashedError
from atoll.host import to_the_end
from atoll.supervisor.lifecycle.checkpoint_files import read_flows
from atoll.supervisor.lifecycle.crash_recovery import CrashRecovery
from atoll.supervisor.lifecycle.limits import tell_changed_memory
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.lifecycle.start import Starts
from atoll.supervisor.lifecycle.stop import PowerOff
from atoll.supervisor.lifecycle.suspend_checkpoint import Memory
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.machines.identity import woken_init
from atoll.supervisor.machines.prestarted import PrestartedDiedError
from atoll.supervisor.machines.running_machine import RunningMachine
from atoll.supervisor.state.leases import NO_LEASE, Columns, length_after_use
from atoll.supervisor.state.registry import Sandbox, crash_reason
from atoll.supervisor.state.transitions import check_action, check_parts, check_use
from atoll.supervisor.storage.consistency import same_instant
from atoll.types import Lifecycle

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.state.rows import OperationKind, SandboxRow
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.compaction import Compaction

# A caller that pauses a guest wants it to stop now. The host stops a guest that keeps its kernel busy.
_PAUSED_S = 0.5
Rest = Callable[[], Coroutine[Any, Any, None]]
_log = logging.getLogger(__name__)
PARTED_REASON = (
    "it ran for a moment while it was being woken, so its memory and its disk are not of one instant"
)


class Sleep:
    """Puts sandboxes to sleep and wakes them.

    Args:
        parts: What sandboxes are made of.
        compaction: Shortens long chains of layers.
        tasks: Owner of the work that continues after a sandbox sleeps.
        roll_back: Rolls a sandbox back in place; its caller holds the sandbox's lock.
    """

    def __init__(
        self, parts: Parts, compaction: Compaction, tasks: Tasks, roll_back: Callable[..., Awaitable[None]]
    ) -> None:
        self._parts = parts
        self._tasks = tasks
        self._compaction = compaction
        self._starts = Starts(parts, compaction)
        self._power_off = PowerOff(parts)
        self._crash_recovery = CrashRecovery(parts.registry, roll_back, self._start_again)

    async def pause(self, sandbox: Sandbox) -> None:
        """Freeze the sandbox in memory. A paused sandbox stays paused.

        Raises:
            StateError: The sandbox is suspended or crashed.
        """
        async with sandbox.lock:
            check_action("pause", sandbox.row.state, sandbox.sandbox_id)
            if sandbox.row.state == "paused":
                return
            running = self._parts.running_of(sandbox)
            try:
                await running.alive(running.freeze(within_s=_PAUSED_S), sandbox.sandbox_id)
                running.hang_up()
                await self._parts.registry.change(sandbox, state="paused")
            except BaseException:
                await to_the_end(thaw_or_end(running))
                raise
        self._parts.watch_paused(sandbox, running)

    async def suspend(self, sandbox: Sandbox, *, memory: bool = True) -> None:
        """Write the sandbox's memory to disk and free its other resources.

        The memory is durable when this returns, the lease has ended, and the guest no longer runs or accepts
        connections. The machine ends after this returns; the next operation on the sandbox waits until then.

        Args:
            memory: False ends the processes instead and keeps only the disk.

        Raises:
            StateError: The sandbox has crashed.
            UnsupportedError: The engine keeps the disk in the memory, and the memory was not to be kept.

        Postcondition: on any exception the sandbox is as it was, or has crashed.
        """
        async with sandbox.lock:
            await self.suspend_locked(sandbox, memory=memory)

    async def suspend_locked(self, sandbox: Sandbox, *, memory: bool = True) -> None:
        """Do what ``suspend`` does. The caller holds the sandbox's lock."""
        check_action("suspend", sandbox.row.state, sandbox.sandbox_id)
        if not memory:
            check_parts(sandbox.sandbox_id, engine_disk=sandbox.row.engine_disk)
        if sandbox.row.state == "suspended":
            if not memory and sandbox.row.has_memory:
                await self._power_off.drop_memory(sandbox)
        else:
            async with contextlib.AsyncExitStack() as under_way:
                kind: OperationKind = "suspend" if memory else "stop"
                await under_way.enter_async_context(self._parts.operations.during(sandbox.sandbox_id, kind))
                rest = await (self._keep_memory(sandbox) if memory else self._stop(sandbox))
                sandbox.lock.outlast(self._tasks.spawn(_leave(rest, under_way.pop_all())))

    async def use(self, sandbox: Sandbox) -> RunningMachine:
        """Make the sandbox run so that it can be used, whether it is paused, suspended or crashed.

        Raises:
            AsleepError: The sandbox sleeps, and use does not wake it.
            QuotaError: The quota of its team allows no more running sandboxes.
            SandboxCrashedError: It crashed, and stays so until a user resumes it or rolls it back.
        """
        async with sandbox.lock:
            check_action("wake", sandbox.row.state, sandbox.sandbox_id)
            check_use(sandbox.row)
            return await self._wake(sandbox, length_after_use(sandbox.row.lifecycle))

    async def resume(
        self, sandbox: Sandbox, timeout_s: float | None = None, *, memory: bool = True, by_hand: bool = True
    ) -> RunningMachine:
        """Make the sandbox run because a client asked for exactly that.

        Args:
            timeout_s: Length of the lease that begins; None takes it from the lifecycle. If the sandbox
                already runs, its lease is extended to this length.
            memory: False drops the checkpoint of a sleeping sandbox and boots from its disk.
            by_hand: Also recover a sandbox that stays crashed until a user resumes it.

        Raises:
            UnsupportedError: The engine keeps the disk in the memory that was to be dropped.
            QuotaError: The quota of its team allows no more running sandboxes, or no lease of this length.
        """
        Lifecycle(timeout_s=timeout_s).check()
        async with sandbox.lock:
            if timeout_s is not None:
                self._parts.quotas.check_lease(sandbox.row.team, Lifecycle(timeout_s=timeout_s))
            row = sandbox.row
            check_action("wake", row.state, sandbox.sandbox_id)
            if not memory:
                check_parts(sandbox.sandbox_id, engine_disk=row.engine_disk)
            length_s = row.lifecycle.timeout_s if timeout_s is None else timeout_s
            if timeout_s is not None and row.state == "running":
                await self._parts.registry.change(sandbox, **self._parts.leases.extended(row, timeout_s))
            return await self._wake(sandbox, length_s, by_hand=by_hand, memory=memory)

    async def _wake(
        self, sandbox: Sandbox, length_s: float | None, *, by_hand: bool = False, memory: bool = True
    ) -> RunningMachine:
        """Make the sandbox run. Unless it already runs, a lease of ``length_s`` begins."""
        running = sandbox.running
        if running is not None and running.gone.is_set():
            await self._parts.crashes.crashed_locked(sandbox, running, crash_reason(sandbox.row, running))
        row = sandbox.row
        columns = self._parts.leases.woken(row, length_s)
        if row.state == "paused":
            await self._thaw(sandbox, columns)
        elif row.state in ("suspended", "crashed"):
            with self._parts.quotas.running(row):
                if row.state == "crashed":
                    await self._crash_recovery.revive(sandbox, columns, by_hand=by_hand)
                elif row.has_memory and memory:
                    await self.restore(sandbox, columns)
                else:
                    if row.has_memory:
                        await self._power_off.drop_memory(sandbox)
                    await self._starts.boot(sandbox, columns)
        return self._parts.running_of(sandbox)

    async def _keep_memory(self, sandbox: Sandbox) -> Rest:
        running = self._parts.running_of(sandbox)
        if sandbox.row.state == "running":
            await running.alive(running.machine.prepare(), sandbox.sandbox_id)
        memory = Memory(self._parts, sandbox)
        await memory.begin()
        return await self.fall_asleep(sandbox, memory)

    async def _stop(self, sandbox: Sandbox) -> Rest:
        if sandbox.row.state != "paused":
            return await self._power_off.stop(sandbox)
        paused_at = sandbox.row.stopped_at
        # The guest has to run for a moment to write its caches to the disk.
        await self._thaw(sandbox, {})
        try:
            return await self._power_off.stop(sandbox)
        except BaseException:
            await to_the_end(self._freeze_again(sandbox, paused_at))
            raise

    async def _freeze_again(self, sandbox: Sandbox, paused_at: float | None) -> None:
        """Pause a sandbox again that was thawed for a step that failed. On a failure it keeps running."""
        running = sandbox.running
        if running is None or sandbox.row.state != "running":
            return  # it has crashed
        try:
            await running.freeze()
        except (AtollError, OSError) as error:
            _log.warning("sandbox %s runs, for it is not frozen again: %s", sandbox.sandbox_id, error)
            await thaw_or_end(running)
            return
        paused: Columns = {"state": "paused", "stopped_at": paused_at}
        try:
            await self._parts.registry.change(sandbox, **paused)
        except (AtollError, OSError) as error:
            # The disk may be full, which may be why the step failed. A restarted supervisor would let it run.
            _log.warning("sandbox %s is paused, which is not written down: %s", sandbox.sandbox_id, error)
            sandbox.row = sandbox.row.but(**paused)
        self._parts.watch_paused(sandbox, running)

    async def fall_asleep(self, sandbox: Sandbox, memory: Memory, *, briefly: bool = False) -> Rest:
        """Put a running or paused sandbox to sleep, and return the work that remains.

        Args:
            memory: The checkpoint to write, already begun.
            briefly: Keep the lease and the clients' connections, make nothing durable, and leave the machine
                to the caller.
        """
        running = self._parts.running_of(sandbox)
        paused = sandbox.row.state == "paused"
        if not briefly:
            running.hang_up()
        running.link.hold()
        try:
            if not paused:
                await running.freeze()
            await running.alive(memory.write(running, durable=not briefly), sandbox.sandbox_id)
            # Until here the frozen guest could go on. From here on the checkpoint on the disk counts.
            more: Columns = {"relayering": True} if briefly else NO_LEASE
            await self._parts.registry.change(
                sandbox, durable=not briefly, state="suspended", machine=None, machine_id=None, **more
            )
        except BaseException:
            await to_the_end(self._undo_suspend(sandbox, running, memory, paused=paused))
            if sandbox.row.state == "crashed":
                raise running.lost(sandbox.sandbox_id) from None
            raise
        sandbox.running, sandbox.link = None, running.link
        running.leave(hang_up=not briefly)
        return partial(_end_and_checksum, self._parts, running, memory.place, sandbox.row, briefly=briefly)

    async def _undo_suspend(
        self, sandbox: Sandbox, running: RunningMachine, memory: Memory, *, paused: bool
    ) -> None:
        running.link.release()
        if not paused:
            await thaw_or_end(running)
        if running.gone.is_set():
            why = "it ended while it was being suspended"
            await self._parts.crashes.crashed_locked(sandbox, running, why)
        elif paused:
            self._parts.watch_paused(sandbox, running)
        await memory.undo()

    async def _thaw(self, sandbox: Sandbox, columns: Columns) -> None:
        running = self._parts.running_of(sandbox)
        # The row first: a supervisor that adopts a running machine thaws it if it may be frozen.
        await self._parts.registry.change(sandbox, state="running", **columns)
        try:
            runs = await running.alive(thaw_or_end(running), sandbox.sandbox_id)
        except BaseException:
            await to_the_end(self._parts.registry.change(sandbox, state="paused"))
            raise
        if not runs:
            await self._parts.crashes.crashed_locked(sandbox, running, "it could not be thawed")
            raise running.lost(sandbox.sandbox_id)
        await tell_changed_memory(self._parts, sandbox)

    async def restore(self, sandbox: Sandbox, columns: Columns, *, durable: bool = True) -> None:
        """Restore a sleeping sandbox from its checkpoint, and change these columns of its row with it."""
        try:
            await self._restore(sandbox, columns, durable=durable)
        except PrestartedDiedError:
            if sandbox.row.state != "suspended":  # its guest has run for a moment
                raise
            await self._restore(sandbox, columns, durable=durable)

    async def _restore(self, sandbox: Sandbox, columns: Columns, *, durable: bool) -> None:
        self._starts.assert_disk(sandbox)
        await self._compaction.shorten(sandbox)
        checkpoint = self._parts.paths.checkpoint(sandbox.sandbox_id)
        row = sandbox.row.but(generation=sandbox.row.generation + 1)
        link, kept = await self._starts.link_of(sandbox)
        waking = self._parts.operations.during(sandbox.sandbox_id, "wake", link_id=link.link_id)
        async with contextlib.AsyncExitStack() as under_way:
            try:
                await under_way.enter_async_context(waking)
                plan = self._parts.plan(row, checkpoint=checkpoint)
                running = await self._parts.running_machines.begin(plan, link, woken_init(row))
                try:
                    if kept:
                        link.release()
                    else:
                        await link.reset_connections(read_flows(checkpoint))
                    changes = {**columns, "generation": row.generation, "reason": None}
                    # The guest already runs. If this were not written, its memory would be lost: the next
                    # step erases the checkpoint.
                    await self._parts.take_up(sandbox, running, durable=durable, freeing=True, **changes)
                except BaseException:
                    await to_the_end(self._parts.running_machines.end(running))
                    raise
            except DamagedError as error:
                await to_the_end(_give_up_memory(self._parts, sandbox, link, error.message))
                raise
            except BaseException as error:
                await to_the_end(self._put_back(sandbox, link, kept))
                raise _woken_badly(sandbox, error) from None
        if not row.engine_disk:  # with an engine disk, a crash would leave only the checkpoint
            self._parts.trash.take(checkpoint)

    async def _put_back(self, sandbox: Sandbox, link: Link, kept: bool) -> None:
        """Undo a failed wake: the sandbox sleeps again, unless its guest has changed its disk meanwhile."""
        checkpoint = self._parts.paths.checkpoint(sandbox.sandbox_id)
        disk = self._parts.paths.disk(sandbox.sandbox_id, sandbox.row.disk)
        if sandbox.row.engine_disk or await asyncio.to_thread(same_instant, checkpoint, disk):
            # Only a link that was kept during the sleep still has the sandbox's connections.
            if kept:
                sandbox.link = link
            else:
                await link.aclose()
            return
        await _give_up_memory(self._parts, sandbox, link, PARTED_REASON)

    async def _start_again(self, sandbox: Sandbox, columns: Columns) -> None:
        """Start a crashed sandbox from its disk, or its newest checkpoint if the engine keeps the disk."""
        if sandbox.row.engine_disk and self._parts.paths.checkpoint(sandbox.sandbox_id).is_dir():
            await self.restore(sandbox, columns)
        else:
            await self._starts.boot(sandbox, columns)


async def _end_and_checksum(
    parts: Parts, running: RunningMachine, checkpoint: Path, row: SandboxRow, *, briefly: bool
) -> None:
    """End the machine of a sandbox that now sleeps. At the same time, compute its memory's checksums."""
    machines = parts.running_machines
    await asyncio.gather(machines.end(running), machines.write_checksums(checkpoint, row.sandbox_id))
    if not briefly:
        machines.prestarted_machines.expect(parts.plan(row))


async def _give_up_memory(parts: Parts, sandbox: Sandbox, link: Link, reason: str) -> None:
    """Mark a sandbox whose memory can no longer be used as crashed: ``on_crash`` says how it goes on."""
    # The memory first: even if the row is not written, nothing may restore this memory.
    parts.trash.take(parts.paths.checkpoint(sandbox.sandbox_id))
    try:
        await parts.registry.change(sandbox, state="crashed", reason=reason, link_id=None)
    except (AtollError, OSError) as error:
        _log.warning("the crash of sandbox %s is not written down: %s", sandbox.sandbox_id, error)
        sandbox.row = sandbox.row.but(state="crashed", reason=reason, link_id=None)
    await link.aclose()


async def _leave(rest: Rest, under_way: contextlib.AsyncExitStack) -> None:
    """Do the remaining work, then end the operation: a restarted supervisor would do what is left of it."""
    async with under_way:
        await rest()


def _woken_badly(sandbox: Sandbox, error: BaseException) -> BaseException:
    """The error to report for a failed wake.

    A guest that was killed while frozen fails every wake like this.
    """
    if not isinstance(error, SandboxCrashedError | MachineEndedError) or sandbox.row.state != "suspended":
        return error
    remedy = (
        "roll it back to a snapshot"
        if sandbox.row.engine_disk
        else "`atoll resume --no-memory` boots its disk"
    )
    return SandboxCrashedError(
        f"sandbox {sandbox.sandbox_id} ended while it was being woken, and sleeps again",
        hint=f"use it again; if it always ends so, {remedy}",
        sandbox_id=sandbox.sandbox_id,
    )
