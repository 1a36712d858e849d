"""Starts and ends machines together with the disk and the link that they run on."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.engines import DetachableFiles, Engine, Machine, MachinePlan, PrestartedMachine, Prestarting
from atoll.errors import (
    AtollError,
    DamagedError,
    EngineError,
    UnresponsiveError,
    UnsupportedError,
)
from atoll.guest import GuestInit
from atoll.host import to_the_end
from atoll.supervisor.integrity.checksums import CheckpointChecksums
from atoll.supervisor.machines.disk_budget import growth_at_start
from atoll.supervisor.machines.machine_planner import MachinePlanner
from atoll.supervisor.machines.prestarted import PrestartedDiedError, PrestartedMachines
from atoll.supervisor.machines.sandbox_plan import SandboxPlan, earlier_pages_directory
from atoll.supervisor.machines.uplinks import uplink_of
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.rows import SandboxRow, Versions
from atoll.supervisor.state.running_machine import MARK, RUNS, RunningMachine

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.snapshots import Layers
    from atoll.supervisor.machines.agent_client import Agents

_log = logging.getLogger(__name__)
_CONSOLE = "console.log"


def _claim(state_dir: Path, console: Path) -> None:
    """Give a machine's directory to a sandbox: from now on ``strays`` finds it for that sandbox."""
    (state_dir / MARK).write_bytes(RUNS)
    aside = state_dir / f"{_CONSOLE}.new"
    aside.symlink_to(console)
    os.replace(aside, state_dir / _CONSOLE)


def _leads_to(state_dir: Path, console: Path) -> bool:
    """Whether a machine's directory was claimed for the sandbox that has this console."""
    try:
        return (state_dir / _CONSOLE).readlink() == console
    except OSError:  # no sandbox has claimed it
        return False


@dataclass(eq=False, repr=False)
class RunningMachines:
    """Starts and ends running machines.

    Args:
        run: Where machines have their own directories; a short path, because sockets are made there.
        sandboxes: Where sandboxes have their directories.
        engine: Returns the engine of a machine or checkpoint.
    """

    run: Path
    sandboxes: Path
    _: KW_ONLY
    engine: Callable[[Versions], Engine]
    machine_planner: MachinePlanner
    layers: Layers
    agents: Agents
    prestarted_machines: PrestartedMachines
    checksums: CheckpointChecksums
    _owned: dict[str, Path] = field(default_factory=dict, init=False)
    _stuck: dict[Path, Machine | PrestartedMachine] = field(default_factory=dict, init=False)

    def machine_ids(self) -> set[str]:
        """The ids of machines that run, are being started, or are kept ready."""
        return set(self._owned) | self.prestarted_machines.ids()

    def disks(self) -> set[Path]:
        """The disks that are mounted for machines."""
        return set(self._owned.values())

    async def begin(self, plan: SandboxPlan, link: Link, wanted: GuestInit) -> RunningMachine:
        """Mount the disk, start or restore the machine, and have its agent apply ``wanted`` to the guest.

        Raises:
            PrestartedDiedError: The machine to restore into has ended. The guest may have run for a moment.

        Postcondition: on any exception the disk is unmounted and nothing runs. The link stays the caller's.
        """
        if stuck := self._stuck.get(plan.disk):
            # Two machines that write to the same disk would destroy it.
            await stuck.kill()
            del self._stuck[plan.disk]
        prestarted = self.prestarted_machines.take(plan) if plan.checkpoint is not None else None
        machine_id = new_id() if prestarted is None else prestarted.machine_id
        self._owned[machine_id] = plan.disk
        try:
            await link.set_rate(plan.limits.network_mib_s)
            machine_plan, has_checksums = await to_the_end(
                asyncio.to_thread(self._prepare, plan, machine_id, link)
            )
            start = self._started(plan, machine_plan, link, prestarted)
            machine = await self._whole(plan.checkpoint if has_checksums else None, start)
        except BaseException:
            if prestarted is not None:
                await to_the_end(self._kill(prestarted, plan.disk))
            await to_the_end(self._clear(plan.disk, self.run / machine_id))
            raise
        finally:
            if plan.checkpoint is not None:
                self.prestarted_machines.expect(plan)
        state_dir = self.run / machine_id
        running = RunningMachine(machine, link, plan.disk, state_dir)
        try:
            memory_bytes = (plan.limits.memory_mib or 0) << 20
            told = msgspec.structs.replace(wanted, memory_bytes=memory_bytes)
            await running.alive(self.agents.first(link, told), plan.sandbox_id)
        except BaseException:
            await to_the_end(self.end(running))
            raise
        return running

    async def _started(
        self, plan: SandboxPlan, machine_plan: MachinePlan, link: Link, prestarted: PrestartedMachine | None
    ) -> Machine:
        """Start a machine, using the prestarted machine if there is one."""
        engine = self.engine(plan.versions)
        if prestarted is not None:
            machine = await self._restored(plan, machine_plan, link, prestarted)
            if machine is not None:
                return machine
            await link.prepare()
        await to_the_end(asyncio.to_thread(self._make_state_dir, machine_plan.state_dir, plan.sandbox_id))
        return await engine.start(machine_plan)

    async def _restored(
        self, plan: SandboxPlan, machine_plan: MachinePlan, link: Link, prestarted: PrestartedMachine
    ) -> Machine | None:
        """Restore into a prestarted machine, and return the machine; None if it has ended instead."""
        try:
            uplink = await link.open_uplink()
        except OSError as error:
            _log.warning("the engine runs the network of sandbox %s: %s", plan.sandbox_id, error)
            await prestarted.kill()
            return None
        with uplink.socket:
            _claim(machine_plan.state_dir, self._console(plan.sandbox_id))
            engine = self.engine(plan.versions)
            assert isinstance(engine, Prestarting), "the engine has made the prestarted machine"
            try:
                return await engine.restore(prestarted, machine_plan, uplink_of(uplink))
            except (EngineError, UnresponsiveError) as error:
                raise PrestartedDiedError(error.message, hint=error.remedy) from error

    async def write_checksums(self, checkpoint: Path, sandbox_id: str) -> None:
        """Write the checksums of a sleeping sandbox's memory.

        Without them it can be used, but not checked.
        """
        try:
            await asyncio.to_thread(self.checksums.write, checkpoint)
        except OSError as error:
            _log.warning("cannot make checksums of the memory of sandbox %s: %s", sandbox_id, error)

    async def _whole(self, checkpoint: Path | None, start: Coroutine[Any, Any, Machine]) -> Machine:
        """Start a machine. Meanwhile, check the memory that it is restored from against its checksums."""
        if checkpoint is None:
            return await start
        check = asyncio.create_task(asyncio.to_thread(self.checksums.check, checkpoint, small=False))
        try:
            machine = await start
        except BaseException:
            await asyncio.wait({check})
            if isinstance(damaged := check.exception(), DamagedError):
                raise damaged from None
            raise
        try:
            await check
        except BaseException:
            await to_the_end(machine.kill())
            raise
        return machine

    async def adopt(self, row: SandboxRow, link: Link, disk: Path) -> RunningMachine | None:
        """Take over a machine that a dead supervisor ran.

        If it has ended, remove its remains and return None.
        """
        state_dir = self.run / (row.machine_id or "")
        machine = await self.engine(row.versions).adopt(row.machine or b"")
        if machine is None:
            await self._clear(disk, state_dir)
            return None
        self._owned[state_dir.name] = disk
        return RunningMachine(machine, link, disk, state_dir)

    async def end_lost(self, row: SandboxRow, disk: Path) -> None:
        """End the machine of a row that cannot be taken over, if it still runs."""
        if machine := await self.engine(row.versions).adopt(row.machine or b""):
            await machine.kill()
        await self._clear(disk, self.run / (row.machine_id or ""))

    async def strays(self, plan: SandboxPlan) -> list[tuple[str, bytes]]:
        """Ids and records of running machines that a dead supervisor started for a sandbox and nothing owns.

        A machine that it only began to start does not run when this returns, and never will.
        """
        engine, console = self.engine(plan.versions), self._console(plan.sandbox_id)
        found = []
        for state_dir in list(self.run.iterdir()) if self.run.is_dir() else ():
            if state_dir.name in self._owned or not _leads_to(state_dir, console):
                continue
            record = await engine.started(state_dir.name, state_dir, plan.limits)
            if record is not None:
                found.append((state_dir.name, record))
        return found

    def let_go(self, running: RunningMachine) -> None:
        """Disown a machine that keeps running: it becomes a leftover unless somebody adopts it."""
        running.close()
        self._owned.pop(running.state_dir.name, None)

    async def end(self, running: RunningMachine) -> None:
        """End the machine and unmount its disk, in any state. The caller keeps the link.

        If the host refuses to end something, this logs it. Nothing starts on that disk before its end.

        Postcondition: no process or mount of the machine is left; its disk is.
        """
        running.leave()
        await self._kill(running.machine, running.disk)
        running.close()
        # The watch may not have run yet, and whatever follows the machine until its end would never stop.
        running.gone.set()
        await self._clear(running.disk, running.state_dir)

    async def _kill(self, machine: Machine | PrestartedMachine, disk: Path) -> None:
        try:
            await machine.kill()
        except (AtollError, OSError) as error:
            _log.error("the machine %s does not end: %s", machine.machine_id, error)
            self._stuck[disk] = machine

    async def step_off(self, running: RunningMachine, plan: SandboxPlan) -> Callable[[], None]:
        """Have a frozen machine let go of its disk, and unmount the disk.

        Returns the work that remains to be done in a thread, see ``Layers.leave``.

        Raises:
            UnsupportedError: Its engine cannot do that.
            AtollError, OSError: The machine could not; it cannot be used any more.
        """
        await self._detaching(plan).detach_files(running.machine)
        return await asyncio.to_thread(self.layers.leave, running.disk)

    async def step_on(self, running: RunningMachine, plan: SandboxPlan) -> None:
        """Undo ``step_off``, on a disk in the same place with the same files.

        Raises:
            AtollError: The machine could not; it cannot be used any more.
        """
        machine_plan = await asyncio.to_thread(
            self.machine_planner.make, plan, running.machine.machine_id, running.link
        )
        await self._detaching(plan).attach_files(running.machine, machine_plan)
        running.limits_changed.set()  # its disk is measured again

    def _detaching(self, plan: SandboxPlan) -> DetachableFiles:
        engine = self.engine(plan.versions)
        if not isinstance(engine, DetachableFiles):
            raise UnsupportedError(f"machines of the engine {engine.name!r} keep their files")
        return engine

    def can_step_off(self, versions: Versions) -> bool:
        """Whether machines of these versions can let go of their disks, see ``step_off``."""
        return isinstance(self.engine(versions), DetachableFiles)

    def _prepare(self, plan: SandboxPlan, machine_id: str, link: Link) -> tuple[MachinePlan, bool]:
        """Mount the disk. Returns what to start on it, and whether its memory has checksums."""
        has_checksums = plan.checkpoint is not None and self.checksums.check(plan.checkpoint, small=True)
        machine_plan = self.machine_planner.make(plan, machine_id, link)
        return msgspec.structs.replace(machine_plan, growth=growth_at_start(self.layers, plan)), has_checksums

    def _console(self, sandbox_id: str) -> Path:
        return self.sandboxes / sandbox_id / _CONSOLE  # one log for all machines of the sandbox

    def _make_state_dir(self, state_dir: Path, sandbox_id: str) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _claim(state_dir, self._console(sandbox_id))

    async def _clear(self, disk: Path, state_dir: Path) -> None:
        try:
            await asyncio.to_thread(self.layers.unmount, disk)
        except (AtollError, OSError) as error:
            _log.warning("cannot unmount %s: %s", disk, error)
        earlier = earlier_pages_directory(disk, state_dir.name)
        for directory in (state_dir, earlier, earlier.with_name(f"{earlier.name}.new")):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        self._owned.pop(state_dir.name, None)
