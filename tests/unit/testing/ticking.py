"""A fake engine whose guests count aloud, so that the conformance tests can judge it."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from atoll.engines import DetachableFiles, MachinePlan, PrestartedMachine, PrestartPlan
from atoll.errors import EngineError
from atoll.testing import (
    FILE_BYTES,
    FakeCoreEngine,
    FakeHost,
    FakePrestarted,
    Ledger,
    Tick,
    fake_engine,
)
from atoll.types import Limits

_EACH_S = 0.005
_COUNT, _FILL_DISK, _FILL_MEMORY = "/bin/count", "/bin/fill-disk", "/bin/fill-memory"


class _Counting:
    """A mixin of fake machines: the word of memory is the number to write next."""

    memory_used_bytes = 1 << 20

    def start_to_count(self: Any) -> None:
        self.counting = asyncio.ensure_future(_count(self))


async def _count(machine: Any) -> None:
    number = 0 if machine.memory == "booted" else int(machine.memory)
    program, *size_bytes = machine.plan.argv
    if program == _FILL_MEMORY and not machine.take_memory(int(size_bytes[0])):
        return
    while machine.alive:
        fits = program != _FILL_DISK or (not machine.paused and machine.write_file(FILE_BYTES))
        if fits and not machine.paused and not machine.detached:
            with (machine.plan.rootfs / "ticks").open("a") as file:
                file.write(f"{machine.plan.hostname} {number}\n")
            number += 1
            machine.memory = str(number)
        await asyncio.sleep(_EACH_S)


def ticking_engine(capabilities: Collection[type]) -> type[FakeCoreEngine]:
    """The type of a fake engine with these capabilities, whose guests count."""
    base = fake_engine(capabilities)
    machine_type = type("TickingMachine", (_Counting, base.machine_type), {})

    class Ticking(base):  # type: ignore[misc,valid-type]
        async def start(self, plan: MachinePlan) -> Any:
            if plan.argv[0] not in (_COUNT, _FILL_DISK, _FILL_MEMORY):
                raise EngineError(f"there is no {plan.argv[0]}")
            machine = await super().start(plan)
            machine.start_to_count()
            return machine

    class Detaching(Ticking):
        async def attach_files(self, machine: Any, plan: MachinePlan) -> None:
            if not plan.rootfs.is_dir():
                machine.crash()
                raise EngineError(f"there is no {plan.rootfs}")
            await super().attach_files(machine, plan)

    engine_type = Detaching if DetachableFiles in capabilities else Ticking
    engine_type.machine_type = machine_type
    return engine_type


class FakeWorkshop:
    """See ``atoll.testing.Workshop``. All its engines share one host."""

    def __init__(self, directory: Path, engine_type: type[FakeCoreEngine]) -> None:
        self.host = FakeHost()
        self._directory = directory
        self._engine_type = engine_type
        self._numbers = itertools.count()

    def engine(self) -> FakeCoreEngine:
        return self._engine_type(self.host)

    def plan(self, machine_id: str, *, like: MachinePlan | None = None) -> MachinePlan:
        state_dir = self.directory()
        rootfs = state_dir / "root"
        if like is None:
            rootfs.mkdir()
        else:
            shutil.copytree(like.rootfs, rootfs)
        return MachinePlan(
            machine_id=machine_id,
            state_dir=state_dir,
            rootfs=rootfs,
            netns=state_dir / "net",
            argv=(_COUNT,),
            hostname=machine_id,
            limits=Limits(memory_mib=1024),
        )

    def prestarted_plan(self, machine_id: str, like: MachinePlan) -> PrestartPlan:
        state_dir = self.directory()
        return PrestartPlan(
            machine_id=machine_id,
            state_dir=state_dir,
            place=state_dir / "place",
            netns=state_dir / "net",
            argv=like.argv,
            env=like.env,
            binds=like.binds,
            limits=like.limits,
        )

    def end_a_process_of(self, prestarted: PrestartedMachine) -> None:
        assert isinstance(prestarted, FakePrestarted)
        prestarted.lost = True

    def filling_disk(self, plan: MachinePlan) -> MachinePlan:
        return msgspec.structs.replace(plan, argv=(_FILL_DISK,))

    def filling_memory(self, plan: MachinePlan, size_bytes: int) -> MachinePlan:
        return msgspec.structs.replace(plan, argv=(_FILL_MEMORY, str(size_bytes)))

    def directory(self) -> Path:
        path = self._directory / f"d{next(self._numbers)}"
        path.mkdir()
        return path

    def ticks(self, plan: MachinePlan) -> list[Tick]:
        file = plan.rootfs / "ticks"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Tick(name, int(number)) for name, number in map(str.split, lines)]

    def ledger(self) -> Ledger:
        alive = {name for name, machine in self.host.machines.items() if machine.alive}
        return Ledger(frozenset(alive | set(self.host.prestarted_machines)), frozenset(), frozenset())

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        asyncio.run(_until_done(test))


async def _until_done(test: Callable[[], Awaitable[None]]) -> None:
    try:
        await test()
    finally:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
