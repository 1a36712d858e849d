"""Putting a running sandbox on another disk layer: it stands still for some milliseconds, beside its disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.errors import AtollError
from atoll.host import to_the_end
from atoll.supervisor.lifecycle.parts import Parts, machine_columns
from atoll.supervisor.lifecycle.suspend_checkpoint import Memory
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.machines.plans import RunPlan
from atoll.supervisor.machines.running_machine import RunningMachine

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.sleep import Sleep
    from atoll.supervisor.state.registry import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.compaction import Compaction

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Relayer:
    """Puts running sandboxes on other layers.

    Args:
        parts: What sandboxes are made of.
        sleep: Falls asleep, and wakes when a machine does not find back.
        compaction: Makes long chains of layers shorter.
        tasks: Owner of what goes on after that.
    """

    def __init__(self, parts: Parts, sleep: Sleep, compaction: Compaction, tasks: Tasks) -> None:
        self._parts = parts
        self._sleep = sleep
        self._compaction = compaction
        self._tasks = tasks

    async def relayer(
        self, sandbox: Sandbox, meanwhile: Callable[[], Coroutine[Any, Any, _T]]
    ) -> tuple[_T, float]:
        """Have a running sandbox sleep only while ``meanwhile`` is awaited.

        Its machine stands still beside its disk, which is not mounted.

        Should the machine not find back onto the disk, or the supervisor end, the sandbox goes on as another machine
        from its memory, which is written for that, but not durably. Clients keep their connections. For a
        caller that holds the sandbox's lock. Returns what ``meanwhile`` does, and the milliseconds that it slept.
        """
        running = self._parts.running_of(sandbox)
        with self._parts.quotas.running(sandbox.row):  # lest somebody take its place
            memory = Memory(self._parts, sandbox)
            await memory.begin()
            try:
                await running.alive(running.machine.prepare(memory.aside), sandbox.sandbox_id)
                began = time.perf_counter()
                await self._sleep.fall_asleep(sandbox, memory, briefly=True)
            except BaseException:
                await to_the_end(memory.undo())
                raise
            # As a whole: a guest that stands still may not be forgotten.
            done = await to_the_end(self._beside(sandbox, running, meanwhile))
            return done, (time.perf_counter() - began) * 1000

    def end_cut_short(self) -> None:
        """Have all go on that a supervisor left in the middle of that: nobody has put them to sleep."""
        for sandbox in self._parts.registry.sandboxes():
            if _is_relayering(sandbox):
                self._tasks.spawn(self._end_cut_short(sandbox))

    async def _end_cut_short(self, sandbox: Sandbox) -> None:
        async with sandbox.lock:
            if not _is_relayering(sandbox):
                return
            try:
                with self._parts.quotas.running(sandbox.row):
                    await self._sleep.restore(sandbox, {}, durable=False)
            except (AtollError, OSError) as error:
                _log.warning("sandbox %s sleeps on: %s", sandbox.sandbox_id, error)

    async def _beside(
        self, sandbox: Sandbox, running: RunningMachine, meanwhile: Callable[[], Coroutine[Any, Any, _T]]
    ) -> _T:
        leave = await self._step_off(running, self._parts.plan(sandbox.row))
        standing = leave is not None
        try:
            return await meanwhile()
        except BaseException:
            if leave is not None:
                # It goes back to the disk that was left, which is in use until that is done.
                await asyncio.to_thread(leave)
                leave = None
            raise
        finally:
            try:
                await self._step_back(sandbox, running, standing=standing)
            finally:
                if leave is not None:
                    self._tasks.spawn(asyncio.to_thread(leave))

    async def _step_off(self, running: RunningMachine, plan: RunPlan) -> Callable[[], None] | None:
        """Have a frozen machine let go of its disk, see ``RunningMachines``; None when it could not, and was ended."""
        try:
            return await self._parts.running_machines.step_off(running, plan)
        except Exception as error:  # noqa: BLE001 - whatever it is, a guest must not stand still for ever
            _log.warning(
                "the machine %s keeps its disk, so it is ended: %s", running.machine.machine_id, error
            )
            await self._parts.running_machines.end(running)
            return None

    async def _step_back(self, sandbox: Sandbox, running: RunningMachine, *, standing: bool) -> None:
        if standing:
            try:
                await self._compaction.shorten(sandbox)
                await self._parts.running_machines.step_on(running, self._parts.plan(sandbox.row))
                # The row first: a machine that may be frozen is thawed again by whoever adopts it.
                columns = machine_columns(running)
                await self._parts.registry.change(sandbox, state="running", relayering=False, **columns)
            except Exception as error:  # noqa: BLE001 - as above
                _log.warning("the machine %s is ended: %s", running.machine.machine_id, error)
                await self._parts.running_machines.end(running)
                standing = False
        if not standing:
            await self._sleep.restore(sandbox, {}, durable=False)
            return
        running.stay()
        sandbox.running, sandbox.link = running, None
        running.link.release()
        if not await thaw_or_end(running):
            await self._parts.crashes.crashed_locked(sandbox, running, "it could not be thawed")
            raise running.lost(sandbox.sandbox_id)
        self._parts.trash.take(self._parts.paths.checkpoint(sandbox.sandbox_id))


def _is_relayering(sandbox: Sandbox) -> bool:
    return sandbox.row.state == "suspended" and sandbox.row.relayering
