"""An engine without a host: its machines live in this process and obey a test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import msgspec

from atoll.engines import (
    AdjustableLimits,
    DetachableFiles,
    DiskBudget,
    DiskGrowth,
    Engine,
    LatePages,
    Machine,
    MachinePlan,
    MachineStats,
    MemoryReadings,
    PrestartedMachine,
    Prestarting,
    PrestartPlan,
    Uplink,
    VolumeBudget,
    VolumeBudgets,
    VolumeUse,
)
from atoll.errors import EngineError
from atoll.types import Limits
from atoll.types.internal import from_json

CHECKPOINT_FILE = "memory.json"


class Call(msgspec.Struct, frozen=True):
    """A call to an engine or machine: the method's name and the machine's id."""

    method: str
    machine_id: str


class FakeHost:
    """The part that outlives a fake engine: the running machines, and their calls.

    Give one host to two engines to test adoption.
    """

    def __init__(self) -> None:
        self.machines: dict[str, FakeCoreMachine] = {}
        self.prestarted_machines: dict[str, FakePrestarted] = {}
        self.calls: list[Call] = []
        self._failures: dict[str, list[BaseException]] = {}
        self._holds: dict[str, asyncio.Event] = {}

    def fail_next(self, method: str, error: BaseException | None = None) -> None:
        """Make the next call of ``method`` raise an error, by default an EngineError."""
        self._failures.setdefault(method, []).append(error or EngineError(f"the test lets {method} fail"))

    def hold(self, method: str) -> asyncio.Event:
        """Make calls of ``method`` wait until the returned event is set."""
        return self._holds.setdefault(method, asyncio.Event())

    def methods(self, machine_id: str) -> list[str]:
        """The methods called for one machine, in order."""
        return [call.method for call in self.calls if call.machine_id == machine_id]

    async def note(self, method: str, machine_id: str) -> None:
        """Record a call, then wait or raise as the test wants."""
        self.calls.append(Call(method, machine_id))
        if method in self._holds:
            await self._holds[method].wait()
        if failures := self._failures.get(method):
            raise failures.pop(0)


class FakeCoreMachine(Machine):
    """A guest that is only a word of memory. ``memory`` goes into a checkpoint and is restored from it.

    With ``doomed`` its agent was killed while the guest was frozen: the guest ends as soon as it continues.
    """

    def __init__(self, host: FakeHost, plan: MachinePlan, memory: str) -> None:
        self.machine_id: str = plan.machine_id
        self.plan = plan
        self.memory = memory
        self.paused: bool = False
        self.detached: bool = False
        self.alive: bool = True
        self.doomed = False
        self.cpu_s: float | None = 0.5
        self.limits: Limits = plan.limits
        self.keep_free_percent: int = plan.keep_free_percent
        self._host = host
        self._ended = asyncio.Event()

    def crash(self) -> None:
        """End as if the processes had been killed from outside; ``kill`` must still be called."""
        self.alive = False
        self._ended.set()

    async def pause(self, *, within_s: float | None = None) -> None:
        """See ``Machine.pause``."""
        await self.used("pause")
        self.paused = True

    async def resume(self) -> None:
        """See ``Machine.resume``."""
        await self.used("resume")
        assert not self.detached, "its files are gone"
        self.paused = False
        if self.doomed:
            self.crash()

    async def checkpoint(self, into: Path, *, durable: bool = False) -> None:
        """See ``Machine.checkpoint``."""
        await self.used("checkpoint")
        (into / CHECKPOINT_FILE).write_bytes(msgspec.json.encode(self.memory))

    async def stats(self) -> MachineStats:
        """See ``Machine.stats``."""
        await self.used("stats")
        limit_mib = self.limits.memory_mib
        limit_bytes = None if limit_mib is None else limit_mib << 20
        return MachineStats(memory_bytes=1 << 20, memory_limit_bytes=limit_bytes, cpu_s=self.cpu_s)

    async def wait(self) -> None:
        """See ``Machine.wait``."""
        await self._ended.wait()

    async def kill(self) -> None:
        """See ``Machine.kill``."""
        await self._host.note("kill", self.machine_id)
        self.crash()
        self._host.machines.pop(self.machine_id, None)

    def record(self) -> bytes:
        """See ``Machine.record``."""
        return msgspec.json.encode(self.machine_id)

    async def used(self, method: str) -> None:
        """Note a call that needs a living machine."""
        await self._host.note(method, self.machine_id)
        if not self.alive:
            raise EngineError(f"{method} failed, the machine {self.machine_id} is dead")

    def write_file(self, size_bytes: int) -> bool:
        """Write a file as its guest. Returns whether the disk accepts it."""
        return True

    def take_memory(self, size_bytes: int) -> bool:
        """Take memory as its guest. Returns False if the host ends the machine for it."""
        return True


class _LatePages(FakeCoreMachine):
    reserved: bool = False

    async def prepare(
        self, into: Path | None = None, *, pages: Path | None = None, read: bool = False
    ) -> None:
        """See ``LatePages.prepare``."""
        await self.used("reserve" if pages else "prepare")
        self.reserved = pages is not None

    async def checkpoint_late(self, into: Path) -> None:
        """See ``LatePages.checkpoint_late``."""
        await self.checkpoint(into)

    async def written(self, *, restorable: bool = False) -> bool:
        """See ``LatePages.written``."""
        early = restorable and self.reserved
        await self.used("restorable" if early else "written")
        return not early


class _AdjustableLimits(FakeCoreMachine):
    async def limit(self, limits: Limits, *, keep_free_percent: int = 0) -> None:
        """See ``AdjustableLimits.limit``."""
        await self.used("limit")
        self.limits: Limits = limits
        self.keep_free_percent: int = keep_free_percent


class _DiskBudget(FakeCoreMachine):
    growth: DiskGrowth | None = None
    event_fd: int | None = None
    added: DiskGrowth = DiskGrowth(size_bytes=0, files=0)

    async def mark_disk(self) -> None:
        """See ``DiskBudget.mark_disk``."""
        await self.used("mark_disk")
        self.added = DiskGrowth(size_bytes=0, files=0)

    def write_file(self, size_bytes: int) -> bool:
        """Write a file as its guest, within the budget. A write that it refuses asks for a measurement."""
        added = DiskGrowth(size_bytes=self.added.size_bytes + size_bytes, files=self.added.files + 1)
        most = self.growth
        if most and (added.size_bytes > most.size_bytes or added.files > most.files):
            if self.event_fd is not None:
                os.eventfd_write(self.event_fd, 1)
            return False
        self.added = added
        return True

    async def watch_disk(self, event_fd: int) -> None:
        """See ``DiskBudget.watch_disk``."""
        self.event_fd = event_fd

    async def limit_growth(self, growth: DiskGrowth | None, event_fd: int | None = None) -> None:
        """See ``DiskBudget.limit_growth``."""
        await self.used("limit_growth")
        self.growth = growth
        if event_fd is not None:
            self.event_fd = event_fd


class _MemoryReadings(FakeCoreMachine):
    memory_used_bytes: int | None = None
    hit_memory: bool = False

    def take_memory(self, size_bytes: int) -> bool:
        """Take memory as its guest. The machine ends if that is more than its limit."""
        self.memory_used_bytes = (self.memory_used_bytes or 0) + size_bytes
        most = self.limits.memory_mib
        if most is not None and self.memory_used_bytes > most << 20:
            self.hit_memory = True
            self.crash()
            return False
        return True

    def memory_bytes(self) -> int | None:
        """See ``MemoryReadings.memory_bytes``."""
        return self.memory_used_bytes

    def hit_memory_limit(self) -> bool:
        """See ``MemoryReadings.hit_memory_limit``."""
        return self.hit_memory


class _VolumeBudgets(FakeCoreMachine):
    budgets: dict[str, VolumeBudget] | None = None
    rooms_event_fd: int | None = None
    volume_uses: Mapping[str, VolumeUse] = MappingProxyType({})
    missed_bytes: int = 0

    async def measure_volumes(self, targets: Sequence[str]) -> dict[str, VolumeUse]:
        """See ``VolumeBudgets.measure_volumes``."""
        await self.used("measure_volumes")
        return {path: self.volume_uses.get(path, VolumeUse()) for path in targets}

    async def limit_volumes(self, budgets: Mapping[str, VolumeBudget], event_fd: int | None = None) -> int:
        """See ``VolumeBudgets.limit_volumes``."""
        await self.used("limit_volumes")
        self.budgets = {**(self.budgets or {}), **budgets}
        if event_fd is not None:
            self.rooms_event_fd = event_fd
        return self.missed_bytes


class FakeMachine(_LatePages, _AdjustableLimits, _DiskBudget, _VolumeBudgets, _MemoryReadings):
    """A fake machine with all capabilities of machines."""


class FakePrestarted(PrestartedMachine):
    """A prestarted machine without memory. With ``lost`` it cannot be used any more."""

    def __init__(self, host: FakeHost, plan: PrestartPlan) -> None:
        self.machine_id: str = plan.machine_id
        self.plan = plan
        self.lost = False
        self._host = host

    async def kill(self) -> None:
        """See ``PrestartedMachine.kill``."""
        await self._host.note("kill_prestarted", self.machine_id)
        self._host.prestarted_machines.pop(self.machine_id, None)


class FakeCoreEngine(Engine):
    """Starts fake machines without any capability. ``fake_engine`` makes engines with some.

    ``host.calls`` has the calls so far, ``host.machines`` the running machines.

    Args:
        host: Shared with another engine; None makes a new one.
    """

    name: ClassVar[str] = "fake"
    machine_type: ClassVar[type[FakeCoreMachine]] = FakeCoreMachine
    version = "fake-1"

    def __init__(self, host: FakeHost | None = None) -> None:
        self.host: FakeHost = host or FakeHost()

    async def probe(self) -> None:
        """See ``Engine.probe``."""
        await self.host.note("probe", "")

    async def start(self, plan: MachinePlan) -> FakeCoreMachine:
        """See ``Engine.start``."""
        await self.host.note("start", plan.machine_id)
        if plan.machine_id in self.host.machines:
            raise EngineError(f"a machine {plan.machine_id} runs already")
        machine = self.machine_type(self.host, plan, _memory(plan))
        self.host.machines[plan.machine_id] = machine
        return machine

    async def started(self, machine_id: str, state_dir: Path, limits: Limits) -> bytes | None:
        """See ``Engine.started``."""
        await self.host.note("started", machine_id)
        machine = self.host.machines.get(machine_id)
        return None if machine is None or not machine.alive else machine.record()

    async def adopt(self, record: bytes) -> FakeCoreMachine | None:
        """See ``Engine.adopt``."""
        machine_id = from_json(record, str)
        await self.host.note("adopt", machine_id)
        machine = self.host.machines.get(machine_id)
        if machine is not None and not machine.alive:
            del self.host.machines[machine_id]
            return None
        return machine


class _Prestarting(FakeCoreEngine):
    async def prestart(self, plan: PrestartPlan) -> FakePrestarted:
        """See ``Prestarting.prestart``."""
        await self.host.note("prestart", plan.machine_id)
        prestarted = FakePrestarted(self.host, plan)
        self.host.prestarted_machines[plan.machine_id] = prestarted
        return prestarted

    async def restore(
        self, prestarted: PrestartedMachine, plan: MachinePlan, uplink: Uplink | None
    ) -> FakeCoreMachine | None:
        """See ``Prestarting.restore``."""
        await self.host.note("restore", plan.machine_id)
        assert self.host.prestarted_machines.pop(plan.machine_id) is prestarted
        assert isinstance(prestarted, FakePrestarted)
        own = prestarted.plan
        assert (own.state_dir, own.argv, own.env, own.binds) == (
            plan.state_dir,
            plan.argv,
            plan.env,
            plan.binds,
        )
        assert (own.limits.memory_mib, own.limits.vcpus) == (plan.limits.memory_mib, plan.limits.vcpus)
        return None if prestarted.lost else await self.start(plan)


class _DetachableFiles(FakeCoreEngine):
    async def detach_files(self, machine: Machine) -> None:
        """See ``DetachableFiles.detach_files``."""
        await self.host.note("detach_files", machine.machine_id)
        assert isinstance(machine, FakeCoreMachine)
        assert machine.paused, "it could still use its files"
        machine.detached = True

    async def attach_files(self, machine: Machine, plan: MachinePlan) -> None:
        """See ``DetachableFiles.attach_files``."""
        await self.host.note("attach_files", machine.machine_id)
        assert isinstance(machine, FakeCoreMachine)
        machine.detached = False


class FakeEngine(_Prestarting, _DetachableFiles):
    """A fake engine with all capabilities but ``OwnDisk``."""

    machine_type: ClassVar[type[FakeCoreMachine]] = FakeMachine


_OF_ENGINES: dict[type, type[FakeCoreEngine]] = {
    Prestarting: _Prestarting,
    DetachableFiles: _DetachableFiles,
}
_OF_MACHINES: dict[type, type[FakeCoreMachine]] = {
    LatePages: _LatePages,
    AdjustableLimits: _AdjustableLimits,
    DiskBudget: _DiskBudget,
    VolumeBudgets: _VolumeBudgets,
    MemoryReadings: _MemoryReadings,
}
CAPABILITIES = frozenset({*_OF_ENGINES, *_OF_MACHINES})


def fake_engine(capabilities: Collection[type]) -> type[FakeCoreEngine]:
    """The type of a fake engine that has just these capabilities, of ``CAPABILITIES``."""
    machines = [kind for capability, kind in _OF_MACHINES.items() if capability in capabilities]
    engines = [kind for capability, kind in _OF_ENGINES.items() if capability in capabilities]
    some = type("FakeSomeMachine", (*machines, FakeCoreMachine), {})
    machine_type = FakeMachine if len(machines) == len(_OF_MACHINES) else some
    return type("FakeSomeEngine", (*engines, FakeCoreEngine), {"machine_type": machine_type})


def _memory(plan: MachinePlan) -> str:
    if plan.checkpoint is None:
        return "booted"
    try:
        return from_json((plan.checkpoint / CHECKPOINT_FILE).read_bytes(), str)
    except (OSError, ValueError) as error:
        raise EngineError(f"{plan.checkpoint} is not a checkpoint: {error}") from None
