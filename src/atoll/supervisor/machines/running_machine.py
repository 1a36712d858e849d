"""Starts and ends machines together with the disk and the link that they run on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from atoll.engines import Bind, Engine, Machine, MachinePlan, PrestartedMachine
from atoll.errors import (
    AtollError,
    DamagedError,
    EngineError,
    HostError,
    SandboxCrashedError,
    SandboxNotFoundError,
)
from atoll.guest import GuestInit
from atoll.host import to_the_end
from atoll.supervisor.machines.disk_budget import growth_at_start
from atoll.supervisor.machines.plans import RunPlan, changes_of
from atoll.supervisor.machines.prestarted import PrestartedDiedError, PrestartedMachines, agent_binds
from atoll.supervisor.machines.uplinks import uplink_of
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.storage.checksums import CheckpointChecksums
from atoll.supervisor.storage.programs import AGENT_ARGV, Programs

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.snapshots import Layers
    from atoll.supervisor.machines.agent_client import Agents

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_CONSOLE = "console.log"
_MARK = "frozen"
_RUNS, _MAY_BE_FROZEN = b"r", b"f"
# When a machine dies, calls to it fail a moment before its end is noticed.
_NOTICED_S = 1.0


def crash_error(sandbox_id: str) -> SandboxCrashedError:
    """The error for a client that waits for a sandbox that crashed."""
    return SandboxCrashedError(
        f"sandbox {sandbox_id} crashed meanwhile",
        hint="use it again, which does what its on_crash says, or roll it back to a snapshot",
        sandbox_id=sandbox_id,
    )


def _there(volume: Path) -> Path:
    """The directory with links resolved: engines follow none, and a user may link volumes from elsewhere."""
    if not volume.is_dir():
        raise HostError(
            f"the volume {volume.parent} is missing",
            hint="restore its directory from a backup, or mount the disk that has it",
        )
    return volume.resolve()


def _claim(state_dir: Path, console: Path) -> None:
    """Make a machine's directory that of a sandbox: from now on ``strays`` finds it for that sandbox."""
    (state_dir / _MARK).write_bytes(_RUNS)
    aside = state_dir / f"{_CONSOLE}.new"
    aside.symlink_to(console)
    os.replace(aside, state_dir / _CONSOLE)


def _leads_to(state_dir: Path, console: Path) -> bool:
    """Whether a machine's directory was claimed for the sandbox that has this console."""
    try:
        return (state_dir / _CONSOLE).readlink() == console
    except OSError:  # it is claimed for no sandbox
        return False


class RunningMachine:
    """A running machine and what belongs to it.

    ``leaving`` is set before the machine is ended on purpose, ``killed`` before its sandbox is killed in the
    middle of an operation. ``reason`` says why the machine was ended for something that it did.
    ``limits_changed`` is set when its sandbox gets other limits.
    """

    def __init__(self, machine: Machine, link: Link, disk: Path, state_dir: Path) -> None:
        self.machine = machine
        self.link = link
        self.disk = disk
        self.state_dir = state_dir
        self._mark = state_dir / _MARK
        self.leaving = False
        self.killed = False
        self.reason: str | None = None
        self.limits_changed = asyncio.Event()
        self.gone = asyncio.Event()
        self._watch = asyncio.create_task(self._watching())

    async def alive(self, work: Coroutine[Any, Any, _T], sandbox_id: str) -> _T:
        """Do the work, but stop when the machine ends.

        Raises:
            SandboxCrashedError: The machine ended meanwhile, not on purpose.
            SandboxNotFoundError: Its sandbox was killed meanwhile.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._watch}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not await self._explains(task.exception()):
                return task.result()
            raise self.lost(sandbox_id)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def lost(self, sandbox_id: str) -> AtollError:
        """The error for a client that waits for a machine that has ended."""
        if self.killed:
            return SandboxNotFoundError(f"sandbox {sandbox_id} has been killed", sandbox_id=sandbox_id)
        return crash_error(sandbox_id)

    async def _explains(self, failure: BaseException | None) -> bool:
        """Whether the machine's end explains a failure: the end may be noticed a moment later."""
        if failure is None or isinstance(failure, ConnectionRefusedError):
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.gone.wait(), _NOTICED_S)
        return self.gone.is_set() and not self.leaving

    async def freeze(self, *, within_s: float | None = None) -> None:
        """Freeze the machine, which runs. ``within_s`` is as in ``Machine.pause``."""
        # Written first: a supervisor that adopts it must know that it may be frozen, whatever its row says.
        self._write_mark(_MAY_BE_FROZEN)
        await self.machine.pause(within_s=within_s)

    async def thaw(self) -> None:
        """Undo ``freeze``. A machine that runs keeps running."""
        await self.machine.resume()
        self._write_mark(_RUNS)

    @property
    def may_be_frozen(self) -> bool:
        """Whether a freeze was started and no thaw has ended since."""
        try:
            return self._mark.read_bytes() != _RUNS
        except FileNotFoundError:
            return False

    def _write_mark(self, mark: bytes) -> None:
        # In place: the file has its block from the start, so a full disk cannot keep a guest frozen.
        fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, mark, 0)
        finally:
            os.close(fd)

    def hang_up(self) -> None:
        """End the connections that clients hold into the guest, because nothing answers on them any more."""
        try:
            self.link.end_dialled()
        except OSError as error:
            _log.warning("cannot close the connections into a guest: %s", error)

    def leave(self, *, hang_up: bool = True) -> None:
        """Mark the machine's end as intended from now on. A second call does nothing.

        Args:
            hang_up: False keeps the clients' connections, for a guest that continues in a moment.
        """
        if not self.leaving:
            self.leaving = True
            if hang_up:
                self.hang_up()

    def columns(self) -> dict[str, Any]:
        """The columns of a sandbox's row that describe this machine."""
        return {
            "machine_id": self.machine.machine_id,
            "machine": self.machine.record(),
            "link_id": self.link.link_id,
        }

    def stay(self) -> None:
        """Undo ``leave``."""
        self.leaving = False

    def close(self) -> None:
        """Stop watching the machine."""
        self._watch.cancel()

    async def _watching(self) -> None:
        await self.machine.wait()
        self.gone.set()


class RunningMachines:
    """Starts and ends running machines.

    Args:
        run: Where machines have their own directories; a short path, because sockets are made there.
        sandboxes: Where sandboxes have their directories.
        engine: Returns the engine of a version.
        programs: The guest agents' binaries.
        layers: The disks.
        agents: Calls guest agents.
        prestarted_machines: The machine that is kept ready.
        checksums: The checksums of checkpoints.
    """

    def __init__(
        self,
        run: Path,
        sandboxes: Path,
        *,
        engine: Callable[[str], Engine],
        programs: Programs,
        layers: Layers,
        agents: Agents,
        prestarted_machines: PrestartedMachines,
        checksums: CheckpointChecksums,
    ) -> None:
        self._run = run
        self._sandboxes = sandboxes
        self._engine = engine
        self._programs = programs
        self._layers = layers
        self._agents = agents
        self.prestarted_machines = prestarted_machines
        self._owned: dict[str, Path] = {}
        self._stuck: dict[Path, Machine | PrestartedMachine] = {}
        self._checksums = checksums

    def machine_ids(self) -> set[str]:
        """The ids of machines that run, are being started, or are kept ready."""
        return set(self._owned) | self.prestarted_machines.ids()

    def disks(self) -> set[Path]:
        """The disks that are mounted for machines."""
        return set(self._owned.values())

    async def begin(self, plan: RunPlan, link: Link, wanted: GuestInit) -> RunningMachine:
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
            await to_the_end(self._clear(plan.disk, self._run / machine_id))
            raise
        finally:
            if plan.checkpoint is not None:
                self.prestarted_machines.expect(plan)
        state_dir = self._run / machine_id
        running = RunningMachine(machine, link, plan.disk, state_dir)
        try:
            memory_bytes = (plan.limits.memory_mib or 0) << 20
            told = msgspec.structs.replace(wanted, memory_bytes=memory_bytes)
            await running.alive(self._agents.first(link, told), plan.sandbox_id)
        except BaseException:
            await to_the_end(self.end(running))
            raise
        return running

    async def _started(
        self, plan: RunPlan, machine_plan: MachinePlan, link: Link, prestarted: PrestartedMachine | None
    ) -> Machine:
        """Start a machine, using the prestarted machine if there is one."""
        engine = self._engine(plan.versions.engine)
        if prestarted is not None:
            machine = await self._restored(plan, machine_plan, link, prestarted)
            if machine is not None:
                return machine
            await link.prepare()
        await to_the_end(asyncio.to_thread(self._make_state_dir, machine_plan.state_dir, plan.sandbox_id))
        return await engine.start(machine_plan)

    async def _restored(
        self, plan: RunPlan, machine_plan: MachinePlan, link: Link, prestarted: PrestartedMachine
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
            engine = self._engine(plan.versions.engine)
            try:
                return await engine.restore(prestarted, machine_plan, uplink_of(uplink))
            except EngineError as error:
                raise PrestartedDiedError(error.message, hint=error.hint) from error

    async def write_checksums(self, checkpoint: Path, sandbox_id: str) -> None:
        """Write the checksums of a sleeping sandbox's memory.

        Without them it can be used, but not checked.
        """
        try:
            await asyncio.to_thread(self._checksums.write, checkpoint)
        except OSError as error:
            _log.warning("cannot make checksums of the memory of sandbox %s: %s", sandbox_id, error)

    async def _whole(self, checkpoint: Path | None, start: Coroutine[Any, Any, Machine]) -> Machine:
        """Start a machine. Meanwhile, check the memory that it is restored from against its checksums."""
        if checkpoint is None:
            return await start
        check = asyncio.create_task(asyncio.to_thread(self._checksums.check, checkpoint, small=False))
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
        state_dir = self._run / (row.machine_id or "")
        machine = await self._engine(row.versions.engine).adopt(row.machine or b"")
        if machine is None:
            await self._clear(disk, state_dir)
            return None
        self._owned[state_dir.name] = disk
        return RunningMachine(machine, link, disk, state_dir)

    async def end_lost(self, row: SandboxRow, disk: Path) -> None:
        """End the machine of a row that cannot be taken over, if it still runs."""
        if machine := await self._engine(row.versions.engine).adopt(row.machine or b""):
            await machine.kill()
        await self._clear(disk, self._run / (row.machine_id or ""))

    async def strays(self, plan: RunPlan) -> list[tuple[str, bytes]]:
        """Ids and records of running machines that a dead supervisor started for a sandbox and nothing owns.

        A machine that it only began to start does not run when this returns, and never will.
        """
        engine, console = self._engine(plan.versions.engine), self._console(plan.sandbox_id)
        found = []
        for state_dir in list(self._run.iterdir()) if self._run.is_dir() else ():
            if state_dir.name in self._owned or not _leads_to(state_dir, console):
                continue
            record = await engine.started(state_dir.name, state_dir, plan.limits)
            if record is not None:
                found.append((state_dir.name, record))
        return found

    def let_go(self, running: RunningMachine) -> None:
        """Disown a machine that keeps running: unless it is adopted again, it is a leftover."""
        running.close()
        self._owned.pop(running.state_dir.name, None)

    async def end(self, running: RunningMachine) -> None:
        """End the machine and unmount its disk, whatever state they are in. The link stays the caller's.

        If the host refuses to end something, that is logged, and nothing starts on that disk before it has
        ended.

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

    async def step_off(self, running: RunningMachine, plan: RunPlan) -> Callable[[], None]:
        """Have a frozen machine let go of its disk, and unmount the disk.

        Returns the work that remains to be done in a thread, see ``Layers.leave``.

        Raises:
            AtollError, OSError: The machine could not; it cannot be used any more.
        """
        await self._engine(plan.versions.engine).detach_files(running.machine)
        return await asyncio.to_thread(self._layers.leave, running.disk)

    async def step_on(self, running: RunningMachine, plan: RunPlan) -> None:
        """Undo ``step_off``, on a disk in the same place with the same files.

        Raises:
            AtollError: The machine could not; it cannot be used any more.
        """
        root = await asyncio.to_thread(self._root, plan)
        machine_plan = self._machine_plan(plan, running.machine.machine_id, root, running.link)
        await self._engine(plan.versions.engine).attach_files(running.machine, machine_plan)
        running.limits_changed.set()  # its disk is measured again

    def _prepare(self, plan: RunPlan, machine_id: str, link: Link) -> tuple[MachinePlan, bool]:
        """Mount the disk. Returns what to start on it, and whether its memory has checksums."""
        has_checksums = plan.checkpoint is not None and self._checksums.check(plan.checkpoint, small=True)
        machine_plan = self._machine_plan(plan, machine_id, self._root(plan), link)
        return msgspec.structs.replace(
            machine_plan, growth=growth_at_start(self._layers, plan)
        ), has_checksums

    def _root(self, plan: RunPlan) -> Path:
        if not plan.image:
            raise HostError(
                f"the image of sandbox {plan.sandbox_id} is missing",
                hint="the home has lost files: restore it from a backup",
            )
        if not plan.engine_disk:
            return self._layers.mount(plan.image, plan.stack, plan.disk)
        changes_of(plan.disk).mkdir(mode=0o700, parents=True, exist_ok=True)
        # A symbolic link may lead to a home's images, and engines do not follow it.
        if len(plan.image) > 1:
            raise HostError(
                "the image was pulled as separate layers, which disks kept by the engine cannot use",
                hint="delete it with `atoll image delete`, and pull it again",
            )
        return plan.image[0].resolve()

    def _machine_plan(self, plan: RunPlan, machine_id: str, root: Path, link: Link) -> MachinePlan:
        volumes = (
            Bind(source=str(_there(one.source)), target=one.target, shared=True) for one in plan.volumes
        )
        return MachinePlan(
            machine_id=machine_id,
            state_dir=self._run / machine_id,
            rootfs=root,
            netns=link.netns,
            argv=AGENT_ARGV,
            changes=changes_of(plan.disk) if plan.engine_disk else None,
            hostname=plan.hostname,
            binds=(*agent_binds(self._programs, plan.versions), *volumes),
            checkpoint=plan.checkpoint,
            read_ahead=plan.read_ahead,
            being_written=plan.being_written,
            limits=plan.limits,
            keep_free_percent=plan.keep_free_percent,
        )

    def _console(self, sandbox_id: str) -> Path:
        return self._sandboxes / sandbox_id / _CONSOLE  # one log for all machines of the sandbox

    def _make_state_dir(self, state_dir: Path, sandbox_id: str) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _claim(state_dir, self._console(sandbox_id))

    async def _clear(self, disk: Path, state_dir: Path) -> None:
        try:
            await asyncio.to_thread(self._layers.unmount, disk)
        except (AtollError, OSError) as error:
            _log.warning("cannot unmount %s: %s", disk, error)
        await asyncio.to_thread(shutil.rmtree, state_dir, ignore_errors=True)
        self._owned.pop(state_dir.name, None)
