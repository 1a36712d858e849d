"""The abilities of an engine beyond the core of its contract.

Each capability is a protocol of an engine or of its machines. A caller asks ``isinstance(machine,
DiskBudget)``, or ``can(engine_type, DiskBudget)`` before there is a machine. It never compares the names of
engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from atoll.engines.base import (
        DiskGrowth,
        Engine,
        Machine,
        MachinePlan,
        PrestartedMachine,
        PrestartPlan,
        Uplink,
        VolumeBudget,
        VolumeUse,
    )
    from atoll.types import Limits


class OwnDisk:
    """An engine that can keep the changes on a guest's disk itself, see ``MachinePlan.changes``.

    This is a mark without methods: an engine with this capability inherits it.
    """


@runtime_checkable
class Prestarting(Protocol):
    """An engine that prepares a machine before the checkpoint to restore in it is known."""

    async def prestart(self, plan: PrestartPlan) -> PrestartedMachine:
        """Prepare a machine for a restore, which then takes about half as long.

        Raises:
            UnsupportedError: This host cannot do that.
            EngineError: It failed.

        Postcondition: on any exception nothing remains on the host.
        """

    async def restore(
        self, prestarted: PrestartedMachine, plan: MachinePlan, uplink: Uplink | None
    ) -> Machine | None:
        """Do the work of ``start`` with a checkpoint, in a prestarted machine.

        Returns None if the prestarted machine could not be used. The guest has not run then and can be
        started without one.

        Args:
            plan: The id, ``state_dir``, ``argv``, ``env``, ``binds`` and the limits of memory and processors
                are those of the prestarted machine; ``changes`` is None.
            uplink: The guest's interface, in the namespace ``plan.netns``; None if the guest has only a
                loopback. The caller keeps the socket.

        Raises:
            EngineError: See ``Engine.start``.

        Postcondition: without a machine nothing remains on the host, not even the prestarted machine.
        """


@runtime_checkable
class DetachableFiles(Protocol):
    """An engine whose paused machines can let go of their files on the host, and take them up again."""

    async def detach_files(self, machine: Machine) -> None:
        """Make a paused machine of this engine close all its files on the host.

        Its root can then be unmounted. The machine stays paused until ``attach_files`` has returned or the
        machine is killed. ``Machine.wait`` does not return meanwhile.

        Raises:
            EngineError: It failed, and the machine is unusable.
        """

    async def attach_files(self, machine: Machine, plan: MachinePlan) -> None:
        """Undo ``detach_files``. The machine is still paused.

        Args:
            plan: The plan it was started with. Another file system with the same files may be mounted on its
                root by now. Files that differ behave as after a restore, see ``Bind``. ``Machine.record``
                changes.

        Raises:
            EngineError: It failed, and the machine is unusable.
        """


@runtime_checkable
class LatePages(Protocol):
    """A machine whose pages may be written after its guest goes on, and read when a restored guest touches them.

    Only the plans of such machines may say ``being_written``. Other machines ignore ``read_ahead``.
    """

    async def prepare(
        self, into: Path | None = None, *, pages: Path | None = None, read: bool = False
    ) -> None:
        """Make the next checkpoint shorter: read the memory that a restore left in its file.

        A machine with ``MachinePlan.earlier_pages`` leaves this memory in the file unless ``read`` asks for
        it. Then ``memory_bytes`` counts it, as a checkpoint into memory needs.

        Call it while the guest runs. With ``into``, an empty directory, memory is also written there. The
        caller must then pause the machine soon and make that checkpoint into the same directory. ``resume``
        discards the written memory.

        With ``pages`` as well, an empty directory on a file system in memory, only space for the checkpoint's
        memory is reserved there. That checkpoint then refers to it. The space counts as atoll's memory: a
        guest could not hold as much again below its limit. ``written`` gives back the space that was not
        needed.

        Raises:
            NoSpaceError: There is not enough space.
        """

    async def checkpoint_late(self, into: Path) -> None:
        """Do the work of ``Machine.checkpoint``, but let memory be written later, see ``written``.

        The state is of this moment, even if the guest is resumed meanwhile.
        """

    async def written(self, *, restorable: bool = False) -> bool:
        """Return when the last checkpoint, made with ``checkpoint_late``, is complete.

        Args:
            restorable: Return as soon as other machines can be restored from it, and return whether it is
                complete by then. If it is not, their plans say ``being_written`` (see ``MachinePlan``), and
                they are useless if a later call fails.

        Raises:
            NoSpaceError: The disk was full, so the checkpoint is useless.
            EngineError: Writing failed, so the checkpoint is useless.
        """


@runtime_checkable
class AdjustableLimits(Protocol):
    """A machine whose limits can change while it runs."""

    async def limit(self, limits: Limits, *, keep_free_percent: int = 0) -> None:
        """Apply other limits from now on.

        A limit on the disk's size applies as far as ``DiskBudget`` has measured. For ``keep_free_percent``
        see ``MachinePlan``.

        Raises:
            UnsupportedError: A limit cannot change while the machine runs; then none has changed.
        """


@runtime_checkable
class DiskBudget(Protocol):
    """A machine that refuses the guest's writes beyond a budget."""

    async def mark_disk(self) -> None:
        """Begin a measurement of the disk: growth from now on counts on top of its result."""

    async def limit_growth(self, growth: DiskGrowth | None, event_fd: int | None = None) -> None:
        """End a measurement: set the growth allowed since the mark. None means no limit.

        The guest's writes beyond it fail with ENOSPC. ``event_fd`` is an eventfd, given once: the engine
        writes to it when another measurement is due. Space that the guest frees counts only from then on.
        """

    async def watch_disk(self, event_fd: int) -> None:
        """Set the eventfd that asks for a measurement, as ``limit_growth`` does, but without measuring first.

        The engine knows the disk's use from the start, or asks for a measurement at once.
        """


@runtime_checkable
class VolumeBudgets(Protocol):
    """A machine that refuses the guest's writes to shared binds beyond the budget of each."""

    async def measure_volumes(self, targets: Sequence[str]) -> dict[str, VolumeUse]:
        """Begin a measurement of shared binds. The result leaves out unknown binds."""

    async def limit_volumes(self, budgets: Mapping[str, VolumeBudget], event_fd: int | None = None) -> int:
        """Set what may be added to each bind from now on, and end a measurement.

        A write beyond the growth of all guests together fails with ENOSPC. A write beyond this guest's growth
        waits for more, for some seconds at most. ``event_fd`` is an eventfd, given once: the engine writes
        the number of needed bytes to it. Returns the bytes that the measurement may have missed because the
        guest moved or removed files meanwhile; the guest gets no growth for them.
        """


@runtime_checkable
class MemoryReadings(Protocol):
    """A machine whose memory can be read cheaply enough to ask often."""

    def memory_bytes(self) -> int | None:
        """Return the guest's memory; None where this host cannot tell."""

    def hit_memory_limit(self) -> bool:
        """Whether the host killed a process of the machine for its memory. Ask before ``kill``."""


def can(engine_type: type[Engine], capability: type) -> bool:
    """Whether engines of a type, or their machines, have a capability."""
    return issubclass(engine_type, capability) or issubclass(engine_type.machine_type, capability)


def memory_bytes(machine: Machine) -> int | None:
    """The memory of a machine's guest; None where that cannot be read."""
    return machine.memory_bytes() if isinstance(machine, MemoryReadings) else None
