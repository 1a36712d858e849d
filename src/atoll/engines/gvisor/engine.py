"""The engine on gVisor.

The guest's kernel is an ordinary process of the host, so no virtual machine is needed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from atoll.engines.base import (
    Engine,
    Machine,
    MachineEndedError,
    MachinePlan,
    PrestartedMachine,
    PrestartPlan,
    Uplink,
)
from atoll.engines.capabilities import OwnDisk
from atoll.engines.gvisor.control import ControlSocket
from atoll.engines.gvisor.halting import halt
from atoll.engines.gvisor.launch import START_TIMEOUT_S, Bounds, launch
from atoll.engines.gvisor.limiting import limit_guest
from atoll.engines.gvisor.machine import GvisorMachine, HostParts
from atoll.engines.gvisor.machine_paths import MachinePaths, open_directory
from atoll.engines.gvisor.pausing import PausingControl
from atoll.engines.gvisor.prestarted import GvisorPrestarted, PrestartedLostError, has_guest, mount_root
from atoll.engines.gvisor.processes import HostProcess, end_processes_of, pids_of, wait_for_start
from atoll.engines.gvisor.record import decode_record, record_of
from atoll.engines.gvisor.spec import bundle_spec, place_of, prestarted_spec
from atoll.errors import EngineError, UnsupportedError
from atoll.host import Cgroup, CgroupRoot, Mounts, run_program, to_the_end
from atoll.types import Limits
from atoll.types.internal import from_json

# The build reads the version from here. A checkpoint restores only under the version that wrote it, so change
# this when the state that runsc saves changes.
RUNSC_VERSION = "atoll-20260905.7"

# The sentry moves its stdio to descriptors from 253 on. In a process with threads, the kernel takes 10 ms to
# grow the descriptor table, and a child starts with a table as large as its parent's. So runsc gets a high
# descriptor.
HIGH_DESCRIPTOR = 256
# A sentry that closes its control socket because its guest has ended exits soon after.
_NOTICED_S = 1.0

_log = logging.getLogger(__name__)


class GvisorEngine(Engine, OwnDisk):
    """Runs machines with ``runsc``, as root of the host or as uid 0 of atoll's own user namespace.

    Args:
        runsc: The program, of the version ``RUNSC_VERSION``.
        cgroups: Where machines get their cgroups. None runs them without cgroup limits of memory and
            processor time.
        flags: Further flags of ``runsc``.
    """

    name: ClassVar[str] = "gvisor"
    machine_type: ClassVar[type[Machine]] = GvisorMachine
    version = RUNSC_VERSION

    def __init__(self, runsc: Path, cgroups: CgroupRoot | None, flags: Sequence[str] = ()) -> None:
        self._runsc = runsc
        self._cgroups = cgroups
        self._flags = tuple(flags)

    async def probe(self) -> None:
        """See ``Engine.probe``."""
        if os.geteuid() != 0:
            raise UnsupportedError(
                "gVisor needs uid 0 of the host or of a user namespace",
                hint="run `atoll doctor`, which says how to get a user namespace",
            )
        result = await run_program([str(self._runsc), "--version"], timeout_s=60, env={})
        words = result.stdout.decode(errors="replace").split()
        if result.exit_code != 0 or self.version not in words:
            raise UnsupportedError(
                f"{self._runsc} is not runsc {self.version}",
                hint="install atoll again, which contains its own runsc",
            )

    async def start(self, plan: MachinePlan) -> GvisorMachine:
        """See ``Engine.start``."""
        cgroup = self._make_cgroup(plan)
        try:
            await self._run(plan, cgroup)
            sentry, gofer = _processes(plan.machine_id, MachinePaths(plan.state_dir))
        except BaseException:
            await to_the_end(_remove_remains(plan, cgroup))
            raise
        parts = HostParts(sentry, gofer, cgroup, plan.limits)
        machine = GvisorMachine(plan.machine_id, plan.state_dir, parts, earlier_pages=plan.earlier_pages)
        control = ControlSocket(MachinePaths(plan.state_dir).control_socket(plan.machine_id))
        try:
            # The specification has these limits too: the answer says that the sentry has not ended.
            await limit_guest(control, plan.limits, plan.keep_free_percent)
            await to_the_end(asyncio.to_thread(machine.earlier.keep, plan.checkpoint))
        except BaseException as error:
            ended = isinstance(error, EngineError) and await sentry.ends_within(_NOTICED_S)
            await to_the_end(machine.kill())
            if ended:
                raise _ended(plan.machine_id) from error
            raise
        return machine

    async def _run(self, plan: MachinePlan, cgroup: Cgroup | None) -> None:
        await self._launch(plan, bundle_spec(plan), _command(plan), cgroup, _overlay(plan))

    async def _launch(
        self,
        plan: MachinePlan | PrestartPlan,
        spec: dict[str, Any],
        command: Sequence[str],
        cgroup: Cgroup | None,
        overlay: str = "none",
    ) -> None:
        paths = MachinePaths(plan.state_dir)
        paths.make()
        paths.config.write_bytes(msgspec.json.encode(spec))
        with open_directory(paths.runsc, at_least=HIGH_DESCRIPTOR) as root:
            argv = [str(self._runsc), *_flags(plan, paths, root, overlay), *self._flags, *command]
            argv += [f"--bundle={paths.bundle}", plan.machine_id]
            await launch(argv, paths, (root,), Bounds(plan.limits, cgroup))

    async def prestart(self, plan: PrestartPlan) -> PrestartedMachine:
        """See ``Prestarting.prestart``."""
        cgroup = self._make_cgroup(plan)
        try:
            plan.place.mkdir(mode=0o755)
            await self._launch(plan, prestarted_spec(plan), ["create"], cgroup)
            sentry, gofer = _processes(plan.machine_id, MachinePaths(plan.state_dir))
        except BaseException:
            try:
                await to_the_end(_remove_remains(plan, cgroup))
            finally:
                await to_the_end(asyncio.to_thread(Mounts.clear, plan.place))
            raise
        return GvisorPrestarted(plan, HostParts(sentry, gofer, cgroup, plan.limits))

    async def restore(
        self, prestarted: PrestartedMachine, plan: MachinePlan, uplink: Uplink | None
    ) -> Machine | None:
        """See ``Prestarting.restore``."""
        assert isinstance(prestarted, GvisorPrestarted), "another engine created this prestarted machine"
        try:
            return await prestarted.restore(plan, uplink)
        except PrestartedLostError as error:
            # If the checkpoint itself is bad, the start that follows reports it.
            _log.warning("the prestarted machine %s cannot be used: %s", plan.machine_id, error)
            await prestarted.kill()
            return None
        except BaseException:
            await to_the_end(prestarted.kill())
            raise

    async def started(self, machine_id: str, state_dir: Path, limits: Limits) -> bytes | None:
        """See ``Engine.started``."""
        record: bytes | None = None
        try:
            record = await self._started(machine_id, state_dir, limits)
        except (EngineError, OSError, ValueError, LookupError, TypeError) as error:
            _log.info("the start of machine %s failed: %s", machine_id, error)
        finally:
            if record is None:
                # A guest that does not answer, or starts a moment later, would write to a disk that was
                # judged unchanged.
                await to_the_end(_end(MachinePaths(state_dir), self._find_cgroup(machine_id)))
        return record

    async def _started(self, machine_id: str, state_dir: Path, limits: Limits) -> bytes | None:
        paths = MachinePaths(state_dir)
        async with asyncio.timeout(START_TIMEOUT_S):
            # The command continues after the process that began it has died.
            await wait_for_start(paths.bundle)
        place = place_of(paths.config)
        sentry, gofer = _processes(machine_id, paths)
        try:
            # These pids may belong to other processes by now.
            if not {sentry.pid, gofer.pid} <= await asyncio.to_thread(pids_of, paths.bundle):
                return None
            control = PausingControl(paths.control_socket(machine_id), self._find_cgroup(machine_id))
            await limit_guest(control, limits, None)
            if not await has_guest(control, machine_id):
                return None
            return record_of(machine_id, state_dir, sentry, gofer, limits, place)
        finally:
            sentry.close()
            gofer.close()

    async def detach_files(self, machine: Machine) -> None:
        """See ``DetachableFiles.detach_files``."""
        assert isinstance(machine, GvisorMachine), "another engine started this machine"
        await machine.files.detach()
        if machine.place is not None:
            await asyncio.to_thread(Mounts.detach, machine.place)

    async def attach_files(self, machine: Machine, plan: MachinePlan) -> None:
        """See ``DetachableFiles.attach_files``."""
        assert isinstance(machine, GvisorMachine), "another engine started this machine"
        gofer: HostProcess | None = None
        paths = MachinePaths(plan.state_dir)
        try:
            if machine.place is not None:
                await to_the_end(asyncio.to_thread(mount_root, plan, machine.place))
            with open_directory(paths.runsc, at_least=HIGH_DESCRIPTOR) as root:
                argv = [
                    str(self._runsc),
                    *_flags(plan, paths, root, _overlay(plan)),
                    *self._flags,
                    "attach",
                    plan.machine_id,
                ]
                await launch(argv, paths, (root,), Bounds(plan.limits, machine.cgroup))
            sentry, gofer = _processes(plan.machine_id, paths)
            sentry.close()
        finally:
            machine.files.attached(gofer)

    @classmethod
    def halt(cls, record: bytes, cgroups: CgroupRoot | None) -> list[tuple[int, int]]:
        """See ``Engine.halt``."""
        return halt(decode_record(record), cgroups)

    def _make_cgroup(self, plan: MachinePlan | PrestartPlan) -> Cgroup | None:
        if self._cgroups is None:
            return None
        return self._cgroups.make(plan.machine_id, plan.limits)

    def _find_cgroup(self, machine_id: str) -> Cgroup | None:
        return self._cgroups.find(machine_id) if self._cgroups else None

    async def adopt(self, record: bytes) -> Machine | None:
        """See ``Engine.adopt``."""
        found = decode_record(record)
        cgroup = self._find_cgroup(found.machine_id)
        sentry = HostProcess.find(found.sentry_pid, found.sentry_started)
        gofer = HostProcess.find(found.gofer_pid, found.gofer_started)
        parts = HostParts(sentry, gofer, cgroup, found.limits)
        place = None if found.place is None else Path(found.place)
        earlier = None if found.earlier_pages is None else Path(found.earlier_pages)
        machine = GvisorMachine(found.machine_id, Path(found.state_dir), parts, place, earlier)
        if sentry is None or gofer is None:
            await machine.kill()
            return None
        return machine


def _flags(plan: MachinePlan | PrestartPlan, paths: MachinePaths, root: int, overlay: str) -> list[str]:
    return [
        # By descriptor, because the control socket is in this directory and a socket's path may have at most
        # 107 bytes.
        f"--root=/proc/self/fd/{root}",
        f"--log={paths.log}",
        "--log-format=json",
        "--platform=systrap",
        "--network=sandbox",
        f"--gofer-network-namespace={plan.netns}",
        f"--overlay2={overlay}",
        "--file-access=exclusive",
        "--file-access-mounts=shared",
        "--ignore-cgroups",
        "--host-settings=ignore",
        "--allow-connected-on-save",
        "--allow-suid",
        "--net-raw",
    ]


def _overlay(plan: MachinePlan) -> str:
    return "none" if plan.changes is None else f"root:dir={plan.changes}"


def _command(plan: MachinePlan) -> list[str]:
    if plan.checkpoint is None:
        return ["run", "--detach"]
    return ["restore", "--detach", "--background", f"--image-path={plan.checkpoint}"]


async def _end(paths: MachinePaths, cgroup: Cgroup | None) -> None:
    if cgroup is not None:  # a frozen process does not end otherwise
        await asyncio.to_thread(cgroup.kill)
    await end_processes_of(paths.bundle)


async def _remove_remains(plan: MachinePlan | PrestartPlan, cgroup: Cgroup | None) -> None:
    await _end(MachinePaths(plan.state_dir), cgroup)
    if cgroup is not None:
        await asyncio.to_thread(cgroup.remove)


def _processes(machine_id: str, paths: MachinePaths) -> tuple[HostProcess, HostProcess]:
    name = f"{machine_id}_sandbox:{machine_id}.state"
    state: dict[str, Any] = from_json((paths.runsc / name).read_bytes())
    sentry = HostProcess.find(state["sandbox"]["pid"])
    gofer = HostProcess.find(state["goferPid"])
    if sentry is None or gofer is None:
        for process in (sentry, gofer):
            if process is not None:
                process.close()
        raise _ended(machine_id)
    return sentry, gofer


def _ended(machine_id: str) -> MachineEndedError:
    return MachineEndedError(f"the machine {machine_id} ended as soon as it started")
