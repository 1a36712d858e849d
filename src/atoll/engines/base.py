"""The engine contract.

An engine starts machines from prepared values and knows nothing of images, policy, the guest agent or leases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import msgspec

from atoll.errors import EngineError, UnsupportedError
from atoll.types import Limits


class MachineEndedError(EngineError):
    """A machine ended right after its start, as it does when its guest is killed while frozen."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do. Callers ask these flags and never compare engine names."""

    pause: bool = False
    checkpoint: bool = False
    live_checkpoint: bool = False
    resize_memory: bool = False
    own_disk: bool = False
    prestarted_machines: bool = False


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the host that appears in the guest: read-only, or ``shared`` with others that change it.

    A shared directory may change while the guest sleeps, and the restore still succeeds. If an open file is
    gone by then, or is a different file, every operation on it fails with ESTALE.
    """

    source: str
    target: str
    shared: bool = False


class MachinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine needs to start one machine. Every path is a host path, as this process sees it.

    ``machine_id`` is unique among living machines. ``state_dir`` is the machine's own directory: the caller
    makes it and erases it after the machine's end. The engine keeps its bundle, sockets and logs there.

    ``rootfs`` is a mounted, writable root. With ``changes``, which needs the capability ``own_disk``, nothing
    is written to the root: the engine keeps the guest's changes in that directory and in every checkpoint.
    ``netns`` is a path that can be opened and entered. ``argv`` is process 1.

    ``checkpoint`` is a directory that an earlier ``Machine.checkpoint`` of the same engine version filled, or
    None to boot. With a checkpoint, ``binds`` must have the same targets as before. The engine soon reads the
    memory that a restored guest has not touched. With ``read_ahead`` False only the next checkpoint reads it:
    such machines share it, and the checkpoint's bytes stay on the disk until these machines have ended, even
    if it is erased. ``being_written`` means that the original machine still writes the checkpoint's memory
    (see ``Machine.written``): the restored guest waits for pages that are missing.

    The engine enforces as many of ``limits`` as the host allows; a limit of None is no limit. ``growth`` is
    how much may be added to the disk until ``Machine.limit_growth`` sets it again. None takes the value from
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


class PrestartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine needs to prepare a machine before the checkpoint to restore is known.

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
    """A guest's network interface: a packet socket bound to it, and what the guest must know about it.

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
    """What the host measures of a machine; None where it cannot.

    ``disk_bytes`` is for a disk that the engine keeps.
    """

    memory_bytes: int | None
    memory_limit_bytes: int | None
    cpu_s: float | None
    disk_bytes: int | None = None


class Machine(ABC):
    """One running guest. Its starter ends it with ``kill``."""

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

    async def prepare(self, into: Path | None = None, *, room: Path | None = None) -> None:  # noqa: B027
        """Make the next checkpoint shorter: read the memory that a restore left in its file.

        Call it while the guest runs. With ``into``, an empty directory, memory is also written there. The
        caller must then pause the machine soon and make that checkpoint into the same directory. ``resume``
        discards what was written.

        With ``room`` as well, an empty directory on a file system in memory, only space for the checkpoint's
        memory is reserved there. That checkpoint then refers to it. The space counts as atoll's memory: a
        guest could not hold as much again below its limit. ``written`` gives back the space that was not
        needed.

        Raises:
            NoSpaceError: There is not enough space.
        """

    async def checkpoint(self, into: Path, *, durable: bool = False, late: bool = False) -> None:
        """Write the guest's memory and state into the directory ``into``.

        It is empty or was given to ``prepare``. The disk is included only if the plan had ``changes``.

        The machine continues, even after an error; a paused guest stays paused. With ``durable`` the files
        are on the disk when this returns, not only in its cache. With ``late`` the state is of this moment,
        but memory may still be written after this returns, even while the resumed guest runs: see
        ``written``.

        The checkpoint includes connections to the outside. They continue if it is restored on the same
        network. A caller that restores it elsewhere must reset them.
        """
        raise UnsupportedError(f"the engine of {self.machine_id} keeps no checkpoints")

    async def written(self, *, restorable: bool = False) -> bool:
        """Return when the last checkpoint, made with ``late``, is complete.

        Args:
            restorable: Return as soon as other machines can be restored from it, and return whether it is
                complete by then. If it is not, their plans say ``being_written`` (see ``MachinePlan``), and
                they are useless if a later call fails.

        Raises:
            NoSpaceError: The disk was full, so the checkpoint is useless.
            EngineError: Writing failed, so the checkpoint is useless.
        """
        return True

    @abstractmethod
    async def stats(self) -> MachineStats:
        """Measure the machine from the host, without waking anything inside."""

    @abstractmethod
    async def limit(self, limits: Limits, *, keep_free_percent: int = 0) -> None:
        """Apply other limits from now on.

        A limit on the disk's size applies as far as ``limit_growth`` has measured. For ``keep_free_percent``
        see ``MachinePlan``.

        Raises:
            UnsupportedError: One of them cannot change while the machine runs; then none has changed.
        """

    @abstractmethod
    async def mark_disk(self) -> None:
        """Begin a measurement of the disk: what is added from now on counts on top of its result."""

    @abstractmethod
    async def limit_growth(self, growth: DiskGrowth | None, event_fd: int | None = None) -> None:
        """End a measurement: set how much may be added beyond what was there at the mark. None is no limit.

        The guest's writes beyond it fail with ENOSPC. ``event_fd`` is an eventfd, given once: the engine
        writes to it when another measurement is due. Space that the guest frees counts only from then on.
        """

    async def watch_disk(self, event_fd: int) -> bool:
        """Set the eventfd that asks for a measurement, as ``limit_growth`` does, but without measuring first.

        The engine knows from the start what is on the disk, or asks for a measurement at once. Returns False
        if it cannot do this.
        """
        return False

    @abstractmethod
    def memory_bytes(self) -> int | None:
        """Return the guest's memory, cheaply enough to ask often; None where this host cannot tell."""

    @abstractmethod
    def hit_memory_limit(self) -> bool:
        """Whether the host killed a process of the machine for its memory. Ask before ``kill``."""

    @abstractmethod
    async def wait(self) -> None:
        """Return when the guest has ended, for whatever reason. Any number of tasks may wait."""

    @abstractmethod
    async def kill(self) -> None:
        """End the guest and free everything the host holds for it. Idempotent; works in every state.

        Postcondition: no process, mount or cgroup of this machine is left.
        """

    @abstractmethod
    def record(self) -> bytes:
        """Return what ``Engine.adopt`` needs to find this machine again: a small JSON text."""


class PrestartedMachine(ABC):
    """A machine without a guest that waits for ``Engine.restore``.

    Until then its owner ends it with ``kill``.
    """

    machine_id: str

    @abstractmethod
    async def kill(self) -> None:
        """See ``Machine.kill``."""


class Engine(ABC):
    """Starts machines. One instance per supervisor, shared by all tasks."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
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

    async def prestart(self, plan: PrestartPlan) -> PrestartedMachine:
        """Prepare a machine for a restore, which then takes about half as long.

        Raises:
            UnsupportedError: The engine cannot do that.
            EngineError: It failed.

        Postcondition: on any exception nothing remains on the host.
        """
        raise UnsupportedError(f"the engine keeps no prestarted machine for {plan.machine_id}")

    async def restore(
        self, prestarted: PrestartedMachine, plan: MachinePlan, uplink: Uplink | None
    ) -> Machine | None:
        """Do what ``start`` does with a checkpoint, in a prestarted machine.

        Returns None if the prestarted machine could not be used. The guest has not run then and can be
        started without one.

        Args:
            plan: The id, ``state_dir``, ``argv``, ``env``, ``binds`` and the limits of memory and processors
                are those of the prestarted machine; ``changes`` is None.
            uplink: The guest's interface, in the namespace ``plan.netns``; None if the guest has only a
                loopback. The caller keeps the socket.

        Raises:
            EngineError: See ``start``.

        Postcondition: without a machine nothing remains on the host, not even the prestarted machine.
        """
        raise UnsupportedError(f"the engine keeps no prestarted machine for {plan.machine_id}")

    async def detach_files(self, machine: Machine) -> None:
        """Make a paused machine of this engine close all its files on the host.

        Its root can then be unmounted. The machine stays paused until ``attach_files`` has returned or the
        machine is killed. ``Machine.wait`` does not return meanwhile.

        Raises:
            UnsupportedError: The engine cannot do that; nothing has changed.
            EngineError: It failed, and the machine is unusable.
        """
        raise UnsupportedError(f"the engine of {machine.machine_id} keeps its files")

    async def attach_files(self, machine: Machine, plan: MachinePlan) -> None:
        """Undo ``detach_files``. The machine is still paused.

        Args:
            plan: The plan it was started with. Another file system with the same files may be mounted on its
                root by now. Files that differ behave as after a restore, see ``Bind``. ``Machine.record``
                changes.

        Raises:
            EngineError: It failed, and the machine is unusable.
        """
        raise UnsupportedError(f"the engine of {machine.machine_id} keeps its files")

    @abstractmethod
    async def started(self, machine_id: str, state_dir: Path, limits: Limits) -> bytes | None:
        """Return the record of a running machine whose starting process has died.

        The plan of the start had this id, directory and limits. Waits until the start is over. Returns None
        if the start has failed.

        Raises:
            EngineError: One of its processes does not end.

        Postcondition: when this returns None, no process of it runs, and none will.
        """

    @abstractmethod
    async def adopt(self, record: bytes) -> Machine | None:
        """Take over a machine that another process, now dead, has started; None if it no longer runs.

        In that case everything it left on the host has been removed.
        """
