"""Cgroups: limits of memory, processor time and processes, where this host allows them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from atoll.errors import HostError
from atoll.host.home import Home
from atoll.types import Limits

# Short, because a cgroup may use all processors until its share of a period is used up, and others wait.
_PERIOD_US = 20_000
_REMOVAL_S = 10.0
_FROZEN_S, _LOOK_S = 5.0, 0.005
# Half of the weight of one program of the host, so that all sandboxes together give way to the supervisor and
# the host.
_WEIGHT_V1, _WEIGHT_V2 = 512, 50
_V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids")
# Used where it exists; version 2 freezes without a controller.
_V1_FREEZER = "freezer"
_V2_CONTROLLERS = ("memory", "cpu", "pids")
# A backstop behind the sentry's own limit: a guest process is two processes of the host, and each thread that
# waits for the disk is a further one.
_ENGINE_PROCESSES = 1024


class MemoryFiles(NamedTuple):
    """The kernel's names of a cgroup's limit, its usage, and the part of it that can be dropped at once."""

    limit: str
    usage: str
    droppable: str


V1_MEMORY = MemoryFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2_MEMORY = MemoryFiles("memory.max", "memory.current", "inactive_file")


def memory_used(directory: Path, files: MemoryFiles) -> int:
    """Return the bytes that a cgroup uses, without file cache that the kernel can drop at once.

    Raises:
        OSError, ValueError: The directory is no cgroup of that version, or is gone.
    """
    used = int((directory / files.usage).read_text())
    return max(0, used - read_stat(directory / "memory.stat").get(files.droppable, 0))


class Cgroup:
    """A cgroup (in version 1: one in each of the hierarchies)."""

    def __init__(self, directories: Mapping[str, Path], *, unified: bool) -> None:
        self._directories = directories
        self._unified = unified

    def entry_files(self) -> list[Path]:
        """Return the files to which a process with one thread writes ``0`` to enter the cgroup.

        That takes 20 µs each. ``add`` may wait some milliseconds for the kernel.
        """
        name = "cgroup.procs" if self._unified else "tasks"
        return [directory / name for directory in self._distinct()]

    def add(self, pid: int) -> None:
        """Move a process, with its threads, into the cgroup. Its later children start in it.

        Raises:
            OSError: The process is gone, or the kernel refuses.
        """
        for directory in self._distinct():
            (directory / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """Return the processes in it."""
        with contextlib.suppress(FileNotFoundError):  # the cgroup was removed
            return [int(line) for line in (self._directories["memory"] / "cgroup.procs").read_text().split()]
        return []

    def memory_bytes(self) -> int:
        """Return the memory in use, without file cache that the kernel can drop at once."""
        return memory_used(self._directories["memory"], V2_MEMORY if self._unified else V1_MEMORY)

    def cpu_s(self) -> float:
        """Return the processor time that all its processes have used so far, in seconds."""
        if self._unified:
            return read_stat(self._directories["cpu"] / "cpu.stat").get("usage_usec", 0) / 1e6
        return int((self._directories["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def oom_kills(self) -> int:
        """Return how many of its processes the kernel killed for lack of memory; 0 if it does not count."""
        directory = self._directories["memory"]
        with contextlib.suppress(OSError):  # the cgroup was removed
            return read_stat(directory / ("memory.events" if self._unified else "memory.oom_control")).get(
                "oom_kill", 0
            )
        return 0

    def freeze(self) -> bool:
        """Stop all its processes at any point of their work. Returns whether this host can do that.

        A process that waits in the kernel is frozen when it returns from there.

        Raises:
            OSError: The kernel refuses, or the cgroup is gone.
        """
        file = self._freezer()
        if file is None:
            return False
        file.write_text("1" if self._unified else "FROZEN")
        until_s = time.monotonic() + _FROZEN_S
        while not self._all_frozen() and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        return True

    def thaw(self) -> None:
        """Undo ``freeze``; does nothing if it is not frozen."""
        file = self._freezer()
        if file is not None:
            with contextlib.suppress(FileNotFoundError):  # the cgroup was removed
                file.write_text("0" if self._unified else "THAWED")

    def is_frozen(self) -> bool:
        """Whether it was frozen and has not been thawed since."""
        file = self._freezer()
        if file is None:
            return False
        with contextlib.suppress(FileNotFoundError):  # the cgroup was removed
            return file.read_text().strip() not in ("0", "THAWED")
        return False

    def _freezer(self) -> Path | None:
        if self._unified:
            return self._directories["memory"] / "cgroup.freeze"
        directory = self._directories.get(_V1_FREEZER)
        return None if directory is None else directory / "freezer.state"

    def _all_frozen(self) -> bool:
        if self._unified:
            return read_stat(self._directories["memory"] / "cgroup.events").get("frozen") == 1
        return (self._directories[_V1_FREEZER] / "freezer.state").read_text().strip() == "FROZEN"

    def kill(self) -> None:
        """Send SIGKILL to all its processes at once, frozen or not. Returns before they have ended.

        A process needs processor time to end, so the cgroup has no limit of it from now on.
        """
        with contextlib.suppress(OSError):  # the cgroup is being removed, or has no such limit
            name, value = ("cpu.max", "max") if self._unified else ("cpu.cfs_quota_us", "-1")
            (self._directories["cpu"] / name).write_text(value)
        try:
            (self._directories["memory"] / "cgroup.kill").write_text("1")
        except OSError:
            # Only version 2 has it, since Linux 5.14.
            self._kill_each()

    def _kill_each(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # In version 1 a frozen process does not even end.
        self.thaw()

    def remove(self) -> None:
        """Kill its remaining processes and remove it. Idempotent.

        Raises:
            HostError: A process in it does not end.
        """
        until_s = time.monotonic() + _REMOVAL_S
        # The first directory goes last: with it a cgroup is found whose removal was interrupted.
        for directory in reversed(self._distinct()):
            while not _removed(directory):
                self._kill_each()
                if time.monotonic() > until_s:
                    raise HostError(f"the processes of the control group {directory} do not end")
                time.sleep(0.005)

    def limit(self, limits: Limits) -> None:
        """Set those limits of memory, processor time and processes that are not None."""
        memory_bytes = None if limits.memory_mib is None else limits.memory_mib << 20
        quota = None if limits.vcpus is None else max(1000, int(limits.vcpus * _PERIOD_US))
        most = None if limits.processes is None else 4 * limits.processes + _ENGINE_PROCESSES
        if self._unified:
            wanted = {
                ("memory", V2_MEMORY.limit): memory_bytes,
                ("cpu", "cpu.max"): None if quota is None else f"{quota} {_PERIOD_US}",
                ("pids", "pids.max"): most,
            }
        else:
            wanted = {
                ("memory", V1_MEMORY.limit): memory_bytes,
                ("cpu", "cpu.cfs_period_us"): None if quota is None else _PERIOD_US,
                ("cpu", "cpu.cfs_quota_us"): quota,
                ("pids", "pids.max"): most,
            }
        for (controller, file), value in wanted.items():
            if value is not None:
                (self._directories[controller] / file).write_text(str(value))

    def _distinct(self) -> list[Path]:
        return list(dict.fromkeys(self._directories.values()))


class CgroupRoot:
    """The cgroup below which a home's cgroups are."""

    def __init__(self, directories: Mapping[str, Path], *, unified: bool) -> None:
        self._directories = directories
        self._unified = unified
        self._is_made = False
        self._most_bytes: int | None = None

    def make(self, name: str, limits: Limits) -> Cgroup:
        """Make a cgroup with these limits (None means no limit), replacing any leftover of that name.

        Raises:
            HostError: The kernel refuses it; then nothing is left.
        """
        cgroup = self._cgroup(name)
        try:
            cgroup.remove()
            self._make_directories(name)
            cgroup.limit(limits)
        except OSError as error:
            with contextlib.suppress(OSError):  # the first failure is the one to report
                cgroup.remove()
            raise HostError(
                f"the control group {name} cannot be created: {error}", hint="see `atoll doctor`"
            ) from error
        return cgroup

    def find(self, name: str) -> Cgroup | None:
        """Return the cgroup with that name, if there is one."""
        return self._cgroup(name) if (self._directories["memory"] / name).is_dir() else None

    def names(self) -> list[str]:
        """Return the names of the existing cgroups."""
        with contextlib.suppress(FileNotFoundError):  # nothing has been made yet
            return sorted(entry.name for entry in self._directories["memory"].iterdir() if entry.is_dir())
        return []

    def cpu_s(self) -> float:
        """Return the processor time that all existing cgroups have used, in seconds."""
        with contextlib.suppress(OSError):  # nothing has been made yet
            return Cgroup(self._directories, unified=self._unified).cpu_s()
        return 0.0

    def limit_memory(self, most_bytes: int) -> None:
        """Set how much memory all its cgroups may use together, from now on and when it is made again.

        The kernel may refuse: then nothing but the supervisor bounds the sum.
        """
        self._most_bytes = most_bytes
        with contextlib.suppress(OSError):  # the root is not made yet, or the kernel refuses
            self._write_limit()

    def _write_limit(self) -> None:
        if self._most_bytes is not None:
            files = V2_MEMORY if self._unified else V1_MEMORY
            (self._directories["memory"] / files.limit).write_text(str(self._most_bytes))

    def remove(self) -> None:
        """Remove the root itself if it has no cgroup left. ``make`` makes it again when needed."""
        for directory in dict.fromkeys(self._directories.values()):
            with contextlib.suppress(OSError):  # it does not exist, or is in use
                directory.rmdir()
                directory.parent.rmdir()

    def _make_directories(self, name: str) -> None:
        for directory in dict.fromkeys(self._directories.values()):
            if not self._is_made:
                self._make_above(directory)
            try:
                (directory / name).mkdir(exist_ok=True)
            except FileNotFoundError:
                # Another process has just removed the empty directories above.
                self._make_above(directory)
                (directory / name).mkdir(exist_ok=True)
        self._is_made = True

    def _make_above(self, directory: Path) -> None:
        for above in (directory.parent, directory):
            above.mkdir(parents=True, exist_ok=True)
            if self._unified:
                _give_controllers(above)
        name, weight = ("cpu.weight", _WEIGHT_V2) if self._unified else ("cpu.shares", _WEIGHT_V1)
        file = directory.parent / name
        if file.exists():
            file.write_text(str(weight))
        with contextlib.suppress(OSError):  # version 1: the directory of memory may come later
            self._write_limit()

    def _cgroup(self, name: str) -> Cgroup:
        directories = {key: directory / name for key, directory in self._directories.items()}
        return Cgroup(directories, unified=self._unified)


class CgroupMount(msgspec.Struct, frozen=True):
    """A hierarchy whose ``root`` is mounted at ``point``. ``controllers`` is empty for version 2."""

    point: Path
    root: str
    controllers: frozenset[str]


def cgroup_root(home: Home) -> CgroupRoot | None:
    """Return where this home's cgroups can be made, after a real trial; None if there is no such place."""
    name = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    mounts = cgroup_mounts(Path("/proc/self/mountinfo").read_text())
    for root in (_v2_root(mounts, name), _v1_root(mounts, name)):
        if root is not None and _works(root):
            return root
    return None


def cgroup_mounts(mountinfo: str) -> list[CgroupMount]:
    """Return the hierarchies in the text of a mountinfo file."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        _, _, _, root, point, *_ = before.split(" ")
        known = frozenset(options.split(",")) & {*_V1_CONTROLLERS, _V1_FREEZER}
        if kind == "cgroup2" or known:
            found.append(CgroupMount(Path(point), root, frozenset() if kind == "cgroup2" else known))
    return found


def _v1_root(mounts: list[CgroupMount], name: str) -> CgroupRoot | None:
    points = {controller: mount.point for mount in mounts for controller in mount.controllers}
    if os.geteuid() != 0 or any(controller not in points for controller in _V1_CONTROLLERS):
        return None
    used = [*_V1_CONTROLLERS, _V1_FREEZER] if _V1_FREEZER in points else _V1_CONTROLLERS
    below = {controller: points[controller] / "atoll" / name for controller in used}
    return CgroupRoot(below, unified=False)


def _v2_root(mounts: list[CgroupMount], name: str) -> CgroupRoot | None:
    point = next((mount.point for mount in mounts if not mount.controllers), None)
    if point is None:
        return None
    own = paths_of(Path("/proc/self/cgroup").read_text()).get("", PurePosixPath("/")).relative_to("/")
    for parent in _candidates(point, own):
        if _gives_controllers(parent):
            directory = parent / "atoll" / name
            return CgroupRoot(dict.fromkeys(_V2_CONTROLLERS, directory), unified=True)
    return None


def paths_of(groups: str) -> dict[str, PurePosixPath]:
    """Return the cgroups in the text of a process's ``cgroup`` file, by controller.

    The controller of version 2 has an empty name.
    """
    found = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), PurePosixPath(path)))
    return found


def _candidates(point: Path, own: PurePosixPath) -> list[Path]:
    # A cgroup with processes in it cannot give its controllers to children, unless it is the root. So this
    # process's own never can. Processes may move from their own cgroup to a sibling if this user owns the
    # common parent too. The topmost is best, because it outlives a login session.
    above = [point / parent for parent in reversed(own.parents)] or [point]
    return [parent for parent in above if os.access(parent / "cgroup.procs", os.W_OK)]


def _gives_controllers(parent: Path) -> bool:
    try:
        _give_controllers(parent)
    except OSError:
        return False
    return True


def _give_controllers(directory: Path) -> None:
    given = (directory / "cgroup.subtree_control").read_text().split()
    missing = [f"+{name}" for name in _V2_CONTROLLERS if name not in given]
    if missing:
        (directory / "cgroup.subtree_control").write_text(" ".join(missing))


def _works(root: CgroupRoot) -> bool:
    name = f"probe-{os.getpid()}"
    try:
        root.make(name, Limits(memory_mib=1024, vcpus=1, processes=100)).remove()
    except (HostError, OSError):
        return False
    finally:
        root.remove()
    return True


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def read_stat(path: Path) -> dict[str, int]:
    """Return the numbers in a cgroup file that has a name and a number in each line."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
