"""What an engine is: something that starts machines. Engines get prepared values and know nothing of images,
policy, the guest agent or leases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import msgspec

from atoll.errors import EngineError, UnsupportedError
from atoll.types import Limits


class MachineEndedError(EngineError):
    """A machine ended as soon as it had started, as one does whose guest was killed while it stood still."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do. Callers ask these flags and never compare engine names."""

    pause: bool = False
    checkpoint: bool = False
    live_checkpoint: bool = False
    resize_memory: bool = False
    own_disk: bool = False
    prestarted_machines: bool = False


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the host that appears in the guest: read-only, or ``shared`` with whoever else changes it.

    What is shared may change while the guest sleeps, too. Its restore does not fail for that: a file that was open
    and is there no more, or is something else, fails with ESTALE whatever is done with it.
    """

    source: str
    target: str
    shared: bool = False


class MachinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that an engine needs to start one machine; every path is the host's, as this process sees it.

    ``machine_id`` is unique among living machines. ``state_dir`` is the machine's own directory, made by the
    caller and erased by it after the machine's end; the engine keeps its bundle, sockets and logs there.
    ``rootfs`` is a mounted, writable root. With ``changes``, which takes the capability ``own_disk``, nothing is
    written to it: the engine keeps what the guest changes in that directory, and in every checkpoint. ``netns``
    is a path that can be opened and entered. ``argv`` is process 1. ``checkpoint`` is a directory that an
    earlier ``Machine.checkpoint`` of the same engine version filled, or None to boot; then ``binds`` have the
    targets that they had. Memory that a restored guest does not touch is read soon, or with ``read_ahead`` False
    only by the next checkpoint: such machines share it, and the checkpoint's bytes stay on the disk, erased or not,
    until these machines have ended. With ``being_written`` its original still writes the checkpoint's memory, see
    ``Machine.written``: what is not there yet is waited for. Of ``limits`` the engine holds what its host lets it
    hold; there None is no limit. ``growth`` is what may be added to the disk before ``Machine.limit_growth`` says it
    anew; None is what a checkpoint knows of it, and without one all that ``limits`` allow. Writes fail, too, that
    would leave less than ``keep_free_percent`` of the host's disk free, on which the root's files lie.
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
    """What an engine needs to make a machine ready before it is known what it will be restored from.

    ``place`` is where its root will appear: a directory that does not exist yet, on a mount of its own that is shared
    (see ``Mounts.shared``). ``netns`` only confines it, and is nobody else's. All else as in ``MachinePlan``.
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
    """A guest's network interface: a packet socket bound to it, and what the guest is to know of it.

    The host has no address on it any more. The socket has headers of ``PACKET_VNET_HDR`` if ``gso_bytes``, the most
    that may be sent at once, is not 0.
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
    """What may be added to a disk: bytes, rounded up to pages and a page for each file, and files of any kind."""

    size_bytes: int
    files: int


class MachineStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the host sees of a machine. None where it cannot tell; ``disk_bytes`` is for a disk of the engine's own."""

    memory_bytes: int | None
    memory_limit_bytes: int | None
    cpu_s: float | None
    disk_bytes: int | None = None


class Machine(ABC):
    """One running guest. Whoever started it ends it with ``kill``."""

    machine_id: str

    @abstractmethod
    async def pause(self, *, within_s: float | None = None) -> None:
        """Freeze every task of the guest. Its memory stays. One that is paused stays so.

        Args:
            within_s: A guest that its kernel has not paused by then is frozen by the host, where the host can do that:
                it kept its kernel busy. It may run for a moment more in a later call that asks its kernel, such as
                ``checkpoint``.
        """

    @abstractmethod
    async def resume(self) -> None:
        """Undo ``pause``. One that runs goes on."""

    async def prepare(self, into: Path | None = None, *, room: Path | None = None) -> None:  # noqa: B027
        """Make the next checkpoint shorter while the guest runs: read what memory a restore has left in its file.

        With ``into``, an empty directory, memory is also written there. Then the machine is to be paused soon, and that
        checkpoint made into it; ``resume`` forgets what was written.

        With ``room``, an empty directory too, on a file system that lies in memory, only the room for a checkpoint's
        memory is taken there, and that checkpoint refers to it. It then counts as memory of ours: a guest could not
        hold as much again below its limit. ``written`` gives back what was too much.

        Raises:
            NoSpaceError: There is no room.
        """

    async def checkpoint(self, into: Path, *, durable: bool = False, late: bool = False) -> None:
        """Write the guest's memory and state into the directory ``into``: empty, or the one of ``prepare``.

        The disk is in it only where the plan had ``changes``.

        The machine goes on, on an error too; a paused guest stays paused. With ``durable`` the files are on the
        disk when this returns, not only in its cache. With ``late`` the state is that of this moment, but memory
        may still be being written when this returns, beside the guest if it is resumed: see ``written``.

        Connections to the outside are in it too: they go on where it is restored on the same network, and whoever
        restores it elsewhere has them reset.
        """
        raise UnsupportedError(f"the engine of {self.machine_id} keeps no checkpoints")

    async def written(self, *, restorable: bool = False) -> bool:
        """Return when the last checkpoint, made ``late``, is whole.

        Args:
            restorable: Return as soon as others may be restored from it, and give whether it is whole by then. If not,
                they are told so, see ``MachinePlan``, and are of no use should a later call fail.

        Raises:
            NoSpaceError: The disk was full: the checkpoint is of no use.
            EngineError: Nor is it then.
        """
        return True

    @abstractmethod
    async def stats(self) -> MachineStats:
        """What the host sees of it, without waking anything inside."""

    @abstractmethod
    async def limit(self, limits: Limits, *, keep_free_percent: int = 0) -> None:
        """Hold other limits from now on; of the disk's size as far as ``limit_growth`` has said what is there.

        For ``keep_free_percent`` see ``MachinePlan``.

        Raises:
            UnsupportedError: One of them cannot be changed while the machine runs; then nothing was.
        """

    @abstractmethod
    async def mark_disk(self) -> None:
        """Begin a measuring of the disk: what is added to it from now on counts beside the outcome."""

    @abstractmethod
    async def limit_growth(self, growth: DiskGrowth | None, event_fd: int | None = None) -> None:
        """End a measuring: say what more may be added than what was there at the mark; None is no limit.

        The guest's writes beyond it fail with ENOSPC. An eventfd, given once, is written to when another
        measuring is due; what the guest frees counts only from then on.
        """

    async def watch_disk(self, event_fd: int) -> bool:
        """Say where to ask for a measuring when one is due, as ``limit_growth`` does, but without one before.

        What is on the disk is known from its start, or it asks at once. False: it cannot do that.
        """
        return False

    @abstractmethod
    def memory_bytes(self) -> int | None:
        """Memory of the guest, cheaply enough to ask often; None where this host cannot tell."""

    @abstractmethod
    def hit_memory_limit(self) -> bool:
        """Whether the host ended a process of the machine for its memory. To be asked before ``kill``."""

    @abstractmethod
    async def wait(self) -> None:
        """Return when the guest has ended, for whatever reason. Any number of tasks may wait."""

    @abstractmethod
    async def kill(self) -> None:
        """End the guest and free what the host holds for it. Idempotent; works in every state.

        Postcondition: no process, mount or cgroup of this machine is left.
        """

    @abstractmethod
    def record(self) -> bytes:
        """What ``Engine.adopt`` needs to find this machine again from another process: a small JSON text."""


class PrestartedMachine(ABC):
    """A machine without a guest, which waits for ``Engine.restore``. Whoever has it until then ends it."""

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

        Postcondition: on any exception, cancellation included, nothing remains on
        the host: no process, mount, cgroup or tap device.
        """

    async def prestart(self, plan: PrestartPlan) -> PrestartedMachine:
        """Make a machine ready to be restored, which then takes about half as long.

        Raises:
            UnsupportedError: The engine cannot do that.
            EngineError: It failed.

        Postcondition: on any exception nothing remains on the host.
        """
        raise UnsupportedError(f"the engine keeps no prestarted machine for {plan.machine_id}")

    async def restore(
        self, prestarted: PrestartedMachine, plan: MachinePlan, uplink: Uplink | None
    ) -> Machine | None:
        """Do what ``start`` does for a checkpoint, with a prestarted machine.

        None: the prestarted machine was of no use, and the guest has not run: it can be started without one.

        Args:
            plan: The id, ``state_dir``, ``argv``, ``env``, ``binds`` and limits of memory and processors are the
                prestarted machine's, ``changes`` is None.
            uplink: The guest's interface, in the namespace ``plan.netns``; None if it has only a loopback. The socket
                stays the caller's.

        Raises:
            EngineError: See ``start``.

        Postcondition: without a machine nothing remains on the host, of the prestarted machine neither.
        """
        raise UnsupportedError(f"the engine keeps no prestarted machine for {plan.machine_id}")

    async def detach_files(self, machine: Machine) -> None:
        """Have a paused machine of this engine let go of all its files on the host, so that its root can be unmounted.

        It stays paused until ``attach_files`` has returned, or is ended: ``Machine.wait`` does not return meanwhile.

        Raises:
            UnsupportedError: The engine cannot do that; nothing has happened.
            EngineError: It is of no use any more.
        """
        raise UnsupportedError(f"the engine of {machine.machine_id} keeps its files")

    async def attach_files(self, machine: Machine, plan: MachinePlan) -> None:
        """Undo ``detach_files``; the machine is still paused.

        Args:
            plan: The one that it was started with. What is mounted on the root of it may be something else by now, with
                the same files. What is not the same is as after a restore, see ``Bind``. ``Machine.record`` changes.

        Raises:
            EngineError: It is of no use any more.
        """
        raise UnsupportedError(f"the engine of {machine.machine_id} keeps its files")

    @abstractmethod
    async def started(self, machine_id: str, state_dir: Path, limits: Limits) -> bytes | None:
        """The record of a machine that another, dead process was starting by a plan with these, if it runs now.

        Waits until the start is over. None: it has come to nothing.

        Raises:
            EngineError: One of its processes does not end.

        Postcondition: when None, no process of it runs, and none will.
        """

    @abstractmethod
    async def adopt(self, record: bytes) -> Machine | None:
        """Take over a machine that another, dead process started; None when it does not run any more.

        When None, whatever that machine left on the host has been removed.
        """
