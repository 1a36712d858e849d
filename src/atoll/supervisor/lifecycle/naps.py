"""Puts running sandboxes to sleep for a moment, so that their disk can be changed below them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.engines import LatePages
from atoll.errors import AtollError, QuotaError
from atoll.host import to_the_end
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.machines.sandbox_plan import SandboxPlan
from atoll.supervisor.state.running_machine import RunningMachine

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.crashes import Crashes
    from atoll.supervisor.lifecycle.restore import Restores
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.lifecycle.suspend_checkpoint import SuspendCheckpoints
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.compaction import Compaction
    from atoll.supervisor.storage.trash import Trash
    from atoll.supervisor.tenants.quotas import TeamQuotas

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Naps:
    """Has running sandboxes nap."""

    inventory: Inventory
    paths: Paths
    quotas: TeamQuotas
    sandbox_planner: SandboxPlanner
    running_machines: RunningMachines
    suspend_checkpoints: SuspendCheckpoints
    suspends: Suspends
    restores: Restores
    crashes: Crashes
    compaction: Compaction
    trash: Trash
    tasks: Tasks

    async def off_disk(
        self, sandbox: Sandbox, meanwhile: Callable[[], Coroutine[Any, Any, _T]]
    ) -> tuple[_T, float]:
        """Put a running sandbox to sleep only while ``meanwhile`` is awaited. The caller holds its lock.

        Its machine is frozen, and its disk is not mounted.

        If the machine cannot return to the disk, or the supervisor ends, another machine continues from a
        checkpoint. That checkpoint is written only for this case, and is not durable. Clients keep their
        connections. Returns the result of ``meanwhile``, and the milliseconds that the sandbox slept.
        """
        running = sandbox.require_running()
        with self.quotas.running(sandbox.row):  # so that no other sandbox takes its place
            began = await self._fall_asleep(sandbox, running)
            # This cannot be cancelled: a frozen guest must not be left behind.
            done = await to_the_end(self._beside(sandbox, running, meanwhile))
            return done, (time.perf_counter() - began) * 1000

    @contextlib.asynccontextmanager
    async def asleep(self, sandbox: Sandbox) -> AsyncIterator[None]:
        """Have a running sandbox sleep inside the block; its machine has ended. The caller holds its lock.

        A paused or suspended sandbox stays as it is.

        If the block raises, or the supervisor ends, the sandbox continues from a checkpoint. That checkpoint
        is written only for this case, and is not durable. Clients keep their connections. A sandbox whose
        state the block has changed keeps its new state.
        """
        if sandbox.row.state != "running":
            yield
            return
        running = sandbox.require_running()
        await self._fall_asleep(sandbox, running)
        try:
            await to_the_end(self.running_machines.end(running))
            yield
        except BaseException:
            if _is_napping(sandbox):
                await to_the_end(self._wake(sandbox))
            raise

    async def _fall_asleep(self, sandbox: Sandbox, running: RunningMachine) -> float:
        """Put a running sandbox to sleep. Returns since when, by the performance counter."""
        aside = await self.suspend_checkpoints.begin(sandbox)
        try:
            if isinstance(running.machine, LatePages):
                await running.alive(running.machine.prepare(aside), sandbox.sandbox_id)
            began = time.perf_counter()
            await self.suspends.fall_asleep(sandbox, briefly=True)
        except BaseException:
            await to_the_end(self.suspend_checkpoints.undo(sandbox))
            raise
        return began

    async def _wake(self, sandbox: Sandbox) -> None:
        try:
            await self.restores.restore(sandbox, {}, durable=False)
        except (AtollError, OSError) as error:
            _log.warning("sandbox %s stays suspended: %s", sandbox.sandbox_id, error)

    def end_cut_short(self) -> None:
        """Wake all sandboxes that an earlier supervisor left midway: no client suspended them."""
        for sandbox in self.inventory.sandboxes():
            if _is_napping(sandbox):
                self.tasks.spawn(self._end_cut_short(sandbox))

    async def _end_cut_short(self, sandbox: Sandbox) -> None:
        async with sandbox.lock:
            if not _is_napping(sandbox):
                return
            try:
                with self.quotas.running(sandbox.row):
                    await self._wake(sandbox)
            except QuotaError as error:
                _log.warning("sandbox %s stays suspended: %s", sandbox.sandbox_id, error)

    async def _beside(
        self, sandbox: Sandbox, running: RunningMachine, meanwhile: Callable[[], Coroutine[Any, Any, _T]]
    ) -> _T:
        leave = await self._step_off(running, self.sandbox_planner.of(sandbox.row))
        standing = leave is not None
        try:
            return await meanwhile()
        except BaseException:
            if leave is not None:
                # The machine goes back to its old disk, which stays in use until that is done.
                await asyncio.to_thread(leave)
                leave = None
            raise
        finally:
            try:
                await self._step_back(sandbox, running, standing=standing)
            finally:
                if leave is not None:
                    self.tasks.spawn(asyncio.to_thread(leave))

    async def _step_off(self, running: RunningMachine, plan: SandboxPlan) -> Callable[[], None] | None:
        """Detach a frozen machine from its disk, see ``RunningMachines``.

        None if it could not, and was ended.
        """
        try:
            return await self.running_machines.step_off(running, plan)
        except Exception as error:  # noqa: BLE001 - whatever it is, a guest must not stand still for ever
            _log.warning(
                "the machine %s cannot be detached from its disk and is ended: %s",
                running.machine.machine_id,
                error,
            )
            await self.running_machines.end(running)
            return None

    async def _step_back(self, sandbox: Sandbox, running: RunningMachine, *, standing: bool) -> None:
        if standing:
            try:
                await self.compaction.shorten(sandbox)
                await self.running_machines.step_on(running, self.sandbox_planner.of(sandbox.row))
                # The row first: a supervisor that adopts a running machine thaws it if it may be frozen.
                columns = running.columns()
                await self.inventory.change(sandbox, state="running", napping=False, **columns)
            except Exception as error:  # noqa: BLE001 - as above
                _log.warning(
                    "the machine %s cannot be attached to its disk and is ended: %s",
                    running.machine.machine_id,
                    error,
                )
                await self.running_machines.end(running)
                standing = False
        if not standing:
            await self.restores.restore(sandbox, {}, durable=False)
            return
        running.stay()
        sandbox.running, sandbox.link = running, None
        running.link.release()
        if not await thaw_or_end(running):
            await self.crashes.crashed_locked(sandbox, running, "it could not be thawed")
            raise running.lost(sandbox.sandbox_id)
        self.trash.take(self.paths.checkpoint(sandbox.sandbox_id))


def _is_napping(sandbox: Sandbox) -> bool:
    return sandbox.row.state == "suspended" and sandbox.row.napping and sandbox.unplugged is None
