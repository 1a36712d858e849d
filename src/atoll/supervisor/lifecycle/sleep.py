"""Pause, suspend and waking."""

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

# Whoever pauses a guest wants it to stand still now: one that keeps its kernel busy is stopped by the host.
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
        compaction: Makes long chains of layers shorter.
        tasks: Owner of what goes on after a sandbox sleeps.
        roll_back: Brings a snapshot back in place, for a caller that holds the sandbox's lock.
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
        """Freeze it in memory. A paused one stays so.

        Raises:
            StateError: It is suspended or crashed.
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
        """Write its memory to the disk, durable when this returns, and free everything else soon. Its lease is over.

        Nothing of the guest runs any more, and nobody reaches it. What it ran on ends after this has returned; only
        then another operation has its turn.

        Args:
            memory: False ends its processes instead, and keeps the disk alone.

        Raises:
            StateError: It crashed.
            UnsupportedError: Its disk is in its memory, which was not to be kept.

        Postcondition: on any exception it is as it was, or has crashed.
        """
        async with sandbox.lock:
            await self.suspend_locked(sandbox, memory=memory)

    async def suspend_locked(self, sandbox: Sandbox, *, memory: bool = True) -> None:
        """Do what ``suspend`` does, for a caller that holds the sandbox's lock."""
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
        """Have it running for a use, whatever it was: paused, suspended or crashed.

        Raises:
            AsleepError: It sleeps, and is not woken by use.
            QuotaError: Its team may have no more that run.
            SandboxCrashedError: It crashed and is to stay so until somebody decides.
        """
        async with sandbox.lock:
            check_action("wake", sandbox.row.state, sandbox.sandbox_id)
            check_use(sandbox.row)
            return await self._wake(sandbox, length_after_use(sandbox.row.lifecycle))

    async def resume(
        self, sandbox: Sandbox, timeout_s: float | None = None, *, memory: bool = True, by_hand: bool = True
    ) -> RunningMachine:
        """Have it running because somebody wants just that.

        Args:
            timeout_s: Length of the lease that begins; None is what its lifecycle says. One that runs has its lease
                extended to that.
            memory: False drops a memory that is on the disk: it boots from its disk.
            by_hand: Also one that was to stay crashed until somebody decides.

        Raises:
            UnsupportedError: Its disk is in its memory, which was to be dropped.
            QuotaError: Its team may have no more that run, or no such lease.
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
        """Have it running; unless it runs, a lease of that length begins."""
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
        # It has to run for a moment, to write what it has in its caches.
        await self._thaw(sandbox, {})
        try:
            return await self._power_off.stop(sandbox)
        except BaseException:
            await to_the_end(self._freeze_again(sandbox, paused_at))
            raise

    async def _freeze_again(self, sandbox: Sandbox, paused_at: float | None) -> None:
        """Have one be paused again that was thawed for what has failed; one that cannot be frozen runs on."""
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
            # What failed before may be that the disk is full; a next supervisor would have it run.
            _log.warning("sandbox %s is paused, which is not written down: %s", sandbox.sandbox_id, error)
            sandbox.row = sandbox.row.but(**paused)
        self._parts.watch_paused(sandbox, running)

    async def fall_asleep(self, sandbox: Sandbox, memory: Memory, *, briefly: bool = False) -> Rest:
        """Have one that runs or is paused sleep, but for what is left to be done: that is returned.

        Args:
            memory: Begun.
            briefly: Its lease and its clients' connections stay, nothing is durable, and its machine is the caller's.
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
            # Until here the frozen guest could go on, from here the memory on the disk counts.
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
        return partial(_end_and_seal, self._parts, running, memory.place, sandbox.row, briefly=briefly)

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
        # The row first: a machine that may be frozen is thawed again by whoever adopts it.
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
        """Have a sleeping one run from its memory, with these columns of its row changed too."""
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
                    # Its guest runs already: were this not written, its memory would be lost. What follows erases that.
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
        if not row.engine_disk:  # else all that a crash would leave
            self._parts.trash.take(checkpoint)

    async def _put_back(self, sandbox: Sandbox, link: Link, kept: bool) -> None:
        """Undo a waking: the sandbox sleeps again, unless its guest has changed its disk meanwhile."""
        checkpoint = self._parts.paths.checkpoint(sandbox.sandbox_id)
        disk = self._parts.paths.disk(sandbox.sandbox_id, sandbox.row.disk)
        if sandbox.row.engine_disk or await asyncio.to_thread(same_instant, checkpoint, disk):
            # Only a link that it slept with has its connections.
            if kept:
                sandbox.link = link
            else:
                await link.aclose()
            return
        await _give_up_memory(self._parts, sandbox, link, PARTED_REASON)

    async def _start_again(self, sandbox: Sandbox, columns: Columns) -> None:
        """Start a crashed one from its disk, or from its newest instant where the engine kept the disk."""
        if sandbox.row.engine_disk and self._parts.paths.checkpoint(sandbox.sandbox_id).is_dir():
            await self.restore(sandbox, columns)
        else:
            await self._starts.boot(sandbox, columns)


async def _end_and_seal(
    parts: Parts, running: RunningMachine, checkpoint: Path, row: SandboxRow, *, briefly: bool
) -> None:
    """End what a sandbox ran on that sleeps now; its memory is sealed meanwhile, which takes about as long."""
    machines = parts.running_machines
    await asyncio.gather(machines.end(running), machines.seal(checkpoint, row.sandbox_id))
    if not briefly:
        machines.prestarted_machines.expect(parts.plan(row))


async def _give_up_memory(parts: Parts, sandbox: Sandbox, link: Link, reason: str) -> None:
    """Let a sandbox whose memory cannot be used any more be a crashed one: ``on_crash`` says how it goes on."""
    # The memory first: were its row not written, nobody may restore it all the same.
    parts.trash.take(parts.paths.checkpoint(sandbox.sandbox_id))
    try:
        await parts.registry.change(sandbox, state="crashed", reason=reason, link_id=None)
    except (AtollError, OSError) as error:
        _log.warning("the crash of sandbox %s is not written down: %s", sandbox.sandbox_id, error)
        sandbox.row = sandbox.row.but(state="crashed", reason=reason, link_id=None)
    await link.aclose()


async def _leave(rest: Rest, under_way: contextlib.AsyncExitStack) -> None:
    """Do what is left, and only then let the operation be over: a next supervisor would do it otherwise."""
    async with under_way:
        await rest()


def _woken_badly(sandbox: Sandbox, error: BaseException) -> BaseException:
    """What is told of a waking that failed; a guest that was killed while it stood still always ends with it."""
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
