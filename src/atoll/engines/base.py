"""The engine contract.

An engine starts machines from prepared values and knows nothing of images, policy, the guest agent or leases.
This is the core, which every engine has. The module ``capabilities`` has the abilities of some engines beyond
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import msgspec

from atoll.errors import EngineError, UnsupportedError
from atoll.host import CgroupRoot
from atoll.types import Limits


class MachineEndedError(EngineError):
    """A machine ended right after its start, as it does when its guest is killed while frozen."""


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the host that appears in the guest, and may be ``shared`` with others that change it.

    Read-only means that the host refuses every write through it, even from the guest's kernel. A shared
    directory may change while the guest sleeps, and the restore still succeeds. If an open file is gone by
    then, or is a different file, every operation on it fails with ESTALE. Writes to a ``limited`` one wait
    until ``VolumeBudgets.limit_volumes`` says how much may be added.
    """

    source: str
    target: str
    read_only: bool = True
    shared: bool = False
    limited: bool = False


class MachinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine needs to start one machine. Every path is a host path, as this process sees it.

    ``machine_id`` is unique among living machines. ``state_dir`` is the machine's own directory: the caller
    makes it and erases it after the machine's end. The engine keeps its bundle, sockets and logs there.

    ``rootfs`` is a mounted, writable root. With ``changes``, which needs the capability ``OwnDisk``, the root
    may be read-only and has the targets of all ``binds``. The engine writes nothing to it, but keeps the
    guest's changes in that directory and in every checkpoint. ``netns`` is a path that can be opened and
    entered. ``argv`` is process 1.

    ``checkpoint`` is a directory that an earlier ``Machine.checkpoint`` of the same engine version filled, or
    None to boot. With a checkpoint, ``binds`` must differ from those before in their sources only. The engine
    soon reads the memory that a restored guest has not touched, or with ``earlier_pages`` what it may touch
    soon. With ``read_ahead`` False only the next checkpoint reads it: such machines share it, and the
    checkpoint's bytes stay on the disk until these machines have ended, even if it is erased.
    ``being_written`` means that the original machine still writes the checkpoint's memory
    (see ``LatePages.written``): the restored guest waits for pages that are missing.

    ``earlier_pages`` is a directory for the files of earlier checkpoints to which later ones may refer, so
    that memory that has not changed is not written again, and what has not been read is not read for it. The
    engine makes it, on the file system of the checkpoints; the caller erases it after the machine's end. A
    checkpoint has links to these files, so it stays whole whatever happens to the others. With None each
    checkpoint holds all of the memory.

    The engine enforces as many of ``limits`` as the host allows; a limit of None is no limit. ``growth`` is
    how much may be added to the disk until ``DiskBudget.limit_growth`` sets it again. None takes the value from
    the checkpoint; without a checkpoint it is all that ``limits`` allow. Writes also fail if they would leave
    less than ``keep_free_percent`` of the host's disk free; that disk is the one with the root's files.
    """

    machine_id: str
    state_dir: Path
    rootfs: Path
    netns: Path
    argv: tuple[str, ...]
    changes: Path | None = None
    env: tuple[str, ...] = ()
    hostname: str = "atoll"
    binds: tuple[Bind, ...] = ()
    checkpoint: Path | None = None
    read_ahead: bool = True
    being_written: bool = False
    limits: Limits = Limits()
    growth: DiskGrowth | None = None
    keep_free_percent: int = 0
    earlier_pages: Path | None = None


class VolumeBudget(msgspec.Struct, frozen=True):
    """How many bytes a guest may add to a volume, and how many all that write to it may add together.

    ``quota_bytes`` is the quota of the volume: programs see it as the size of the mount.
    """

    size_bytes: int
    left_bytes: int
    quota_bytes: int = 0


class VolumeUse(msgspec.Struct, frozen=True):
    """A guest's use of a volume at the start of a measurement.

    Attributes:
        rest_bytes: The growth that it still has left, including its writes in progress.
        needed_bytes: The bytes that a write waits for.
        nameless_bytes: The size of its open files without a name, which no measurement sees.
    """

    rest_bytes: int = 0
    needed_bytes: int = 0
    nameless_bytes: int = 0


class PrestartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine needs to prepare a machine before the checkpoint to restore is known.

    ``place`` is where its root will appear: a directory that does not exist yet, on its own shared mount (see
    ``Mounts.shared``). ``netns`` only confines the machine, and nothing else uses it. The other fields are as
    in ``MachinePlan``.
    """

    machine_id: str
    state_dir: Path
    place: Path
    netns: Path
    argv: tuple[str, ...]
    env: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    limits: Limits = Limits()


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's network interface: a packet socket bound to it, and its settings for the guest.

    The host no longer has an address on it. ``gso_bytes`` is the most that may be sent at once. If it is not
    0, the socket uses ``PACKET_VNET_HDR`` headers.
    """

    socket_fd: int
    name: str
    mtu: int
    gso_bytes: int
    hardware: bytes
    address: str
    prefix_bits: int
    gateway: str
    gateway_hardware: bytes


class DiskGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be added to a disk: bytes and files of any kind.

    ``size_bytes`` is rounded up to pages and includes one page per file.
    """

    size_bytes: int
    files: int


class MachineStats(msgspec.Struct, frozen=True, kw_only=True):
    """The host's measurements of a machine; None where it cannot measure.

    ``disk_bytes`` is for a disk that the engine keeps.
    """

    memory_bytes: int | None
    memory_limit_bytes: int | None
    cpu_s: float | None
    disk_bytes: int | None = None


class Machine(ABC):
    """A running guest. Its starter ends it with ``kill``."""

    machine_id: str

    @abstractmethod
    async def pause(self, *, within_s: float | None = None) -> None:
        """Freeze every task of the guest. Its memory stays. A paused guest stays paused.

        Args:
            within_s: If the guest's kernel has not paused it by then, because it is busy, the host freezes it
                where it can. The guest may then run for a moment during a later call that needs its kernel,
                such as ``checkpoint``.
        """

    @abstractmethod
    async def resume(self) -> None:
        """Undo ``pause``. A running guest goes on."""

    @abstractmethod
    async def checkpoint(self, into: Path, *, durable: bool = False) -> None:
        """Write the guest's memory and state into the directory ``into``.

        It is empty or was given to ``LatePages.prepare``. The disk is included only if the plan had
        ``changes``.

        The machine continues, even after an error; a paused guest stays paused. With ``durable`` the files
        are on the disk when this returns, not only in its cache.

        The checkpoint includes connections to the outside. These continue after a restore on the same
        network. A caller that restores it elsewhere must reset them.

        Raises:
            NoSpaceError: The disk is full.
            EngineError: The checkpoint failed.
        """

    @abstractmethod
    async def stats(self) -> MachineStats:
        """Measure the machine from the host, without waking anything inside."""

    @abstractmethod
    async def wait(self) -> None:
        """Return when the guest has ended for any reason. Any number of tasks may wait."""

    @abstractmethod
    async def kill(self) -> None:
        """End the guest and free everything the host holds for it. Idempotent; works in every state.

        Postcondition: no process, mount or cgroup of this machine is left.
        """

    @abstractmethod
    def record(self) -> bytes:
        """Return the record for ``Engine.adopt`` to find this machine again: a small JSON text."""


class PrestartedMachine(ABC):
    """A machine without a guest that waits for ``Prestarting.restore``.

    Until then its owner ends it with ``kill``.
    """

    machine_id: str

    @abstractmethod
    async def kill(self) -> None:
        """See ``Machine.kill``."""


class Engine(ABC):
    """Starts machines. One instance per supervisor and version, shared by all tasks.

    Attributes:
        name: Its name in the registry, settings and rows.
        machine_type: The class of its machines, which tells their capabilities before any machine exists.
        version: The version whose checkpoints it can restore.
    """

    name: ClassVar[str]
    machine_type: ClassVar[type[Machine]]
    version: str

    @abstractmethod
    async def probe(self) -> None:
        """Raise UnsupportedError, naming what is missing, if this host cannot run it."""

    @abstractmethod
    async def start(self, plan: MachinePlan) -> Machine:
        """Boot, or restore when ``plan.checkpoint`` is set. Process 1 runs when this returns.

        Raises:
            MachineEndedError: Its guest may have run for a moment.
            EngineError: The machine did not start; the message has the engine's own words.

        Postcondition: on any exception, cancellation included, nothing remains on the host: no process,
        mount, cgroup or tap device.
        """

    @abstractmethod
    async def started(self, machine_id: str, state_dir: Path, limits: Limits) -> bytes | None:
        """Return the record of a machine whose starting process has died.

        The plan of the start had this id, directory and limits. Waits until the start is over. Returns None
        if the start has failed.

        Raises:
            EngineError: A process of the machine does not end.

        Postcondition: when this returns None, no process of the machine runs, and none will.
        """

    @classmethod
    def halt(cls, record: bytes, cgroups: CgroupRoot | None) -> list[tuple[int, int]]:
        """Freeze a machine in an emergency, when the process that owns it does not answer.

        The machine's kernel is not asked. Any process of the same user may call it.

        Args:
            record: The machine's record.
            cgroups: Where machines have their cgroups.

        Returns the pids and start ticks of processes stopped by a signal, or nothing if the host froze them
        together. Their owner has to continue them before the machine can answer.

        Raises:
            EngineError: The machine no longer runs, or is only partly stopped.
            UnsupportedError: Machines of this engine cannot be frozen from outside.
        """
        raise UnsupportedError(f"machines of the engine {cls.name!r} cannot be frozen from outside")

    @abstractmethod
    async def adopt(self, record: bytes) -> Machine | None:
        """Take over a machine that another process, now dead, has started; None if it no longer runs.

        In that case everything it left on the host has been removed.
        """
