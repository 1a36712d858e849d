"""The contract of an engine that keeps prestarted machines, as tests."""

# ruff: noqa: D102  (the names of the tests say it)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from atoll.engines import (
    DetachableFiles,
    Engine,
    Machine,
    MachinePlan,
    PrestartedMachine,
    Prestarting,
    PrestartPlan,
)
from atoll.errors import EngineError
from atoll.testing.ledger import Ledger
from atoll.testing.workshop import PATIENCE_S, Workshop, claimed, ticks_beyond


class PrestartWorkshop(Workshop, Protocol):
    """The additional needs of these tests."""

    def prestarted_plan(self, machine_id: str, like: MachinePlan) -> PrestartPlan:
        """Return a plan for a prestarted machine in which ``like`` can be restored.

        Only its name, paths and network differ.
        """

    def end_a_process_of(self, prestarted: PrestartedMachine) -> None:
        """Kill one of the host processes of a prestarted machine."""


class _Asleep(NamedTuple):
    """A guest that was checkpointed and ended: its plan, where its memory is, and how far it had counted."""

    plan: MachinePlan
    memory: Path
    counted: int


class _Ready(NamedTuple):
    """A prestarted machine for a guest that is asleep, and the plan that restores the guest in it.

    ``prestarting`` is the same engine with its capability under test. ``before`` is the host's ledger from
    the time when only the guest had been made.
    """

    engine: Engine
    prestarting: Prestarting
    asleep: _Asleep
    before: Ledger
    prestarted: PrestartedMachine
    plan: MachinePlan


class PrestartedConformance:
    """Tests of ``Prestarting``. Inherit it and provide the fixture ``workshop``."""

    def test_a_guest_goes_on_in_a_prestarted_machine_under_its_own_name(
        self, workshop: PrestartWorkshop
    ) -> None:
        claimed(workshop, Prestarting)

        async def test() -> None:
            before = workshop.ledger()
            asleep = await _asleep(workshop)
            engine = workshop.engine()
            assert isinstance(engine, Prestarting)
            # Two at once, because each has its own disk.
            plans = []
            for name in ("m2", "m3"):
                prestarted, plan = await _prestarted(workshop, engine, name, asleep)
                plans.append((plan, await _restored(engine, prestarted, plan)))
            for plan, _ in plans:
                assert (await ticks_beyond(workshop, plan, asleep.counted + 1)).hostname == plan.hostname
                ticks = workshop.ticks(plan)
                assert [tick.number for tick in ticks] == list(range(len(ticks)))
            for _, machine in plans:
                await machine.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_a_prestarted_machine_that_nobody_took_leaves_nothing(self, workshop: PrestartWorkshop) -> None:
        claimed(workshop, Prestarting)

        async def test() -> None:
            ready = await _ready(workshop)
            plan = ready.plan
            # If its owner dies before naming a checkpoint to restore, it is not a machine.
            assert await ready.engine.started("m2", plan.state_dir, plan.limits) is None
            await ready.prestarted.kill()
            await ready.prestarted.kill()
            assert workshop.ledger() == ready.before, (ready.before, workshop.ledger())

        workshop.run(test)

    def test_a_prestarted_machine_that_has_ended_is_none_and_the_guest_can_be_started_without(
        self, workshop: PrestartWorkshop
    ) -> None:
        claimed(workshop, Prestarting)

        async def test() -> None:
            ready = await _ready(workshop)
            before, plan = ready.before, ready.plan
            workshop.end_a_process_of(ready.prestarted)
            assert await ready.prestarting.restore(ready.prestarted, plan, None) is None
            assert workshop.ledger() == before, (before, workshop.ledger())
            machine = await ready.engine.start(plan)
            await ticks_beyond(workshop, plan, ready.asleep.counted)
            await machine.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_a_memory_that_cannot_be_restored_is_an_error_and_leaves_nothing(
        self, workshop: PrestartWorkshop
    ) -> None:
        claimed(workshop, Prestarting)

        async def test() -> None:
            ready = await _ready(workshop)
            for file in ready.asleep.memory.iterdir():
                file.write_bytes(b"rubbish")
            with pytest.raises(EngineError):  # noqa: PT012 - an engine may tell it by either of them
                assert await ready.prestarting.restore(ready.prestarted, ready.plan, None) is None
                await ready.engine.start(ready.plan)
            assert workshop.ledger() == ready.before, (ready.before, workshop.ledger())

        workshop.run(test)

    def test_cancelling_a_prestarted_machine_and_its_use_leaves_nothing(
        self, workshop: PrestartWorkshop
    ) -> None:
        claimed(workshop, Prestarting)

        async def test() -> None:
            asleep = await _asleep(workshop)
            before = workshop.ledger()
            engine = workshop.engine()
            assert isinstance(engine, Prestarting)
            for number, delay_s in enumerate((0, 0.01, 0.03)):
                plan = workshop.prestarted_plan(f"c{number}", asleep.plan)
                making = asyncio.ensure_future(engine.prestart(plan))
                await asyncio.sleep(delay_s)
                making.cancel()
                for made in await asyncio.gather(making, return_exceptions=True):
                    if isinstance(made, PrestartedMachine):
                        await made.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())
            for number, delay_s in enumerate((0, 0.005, 0.02)):
                prestarted, machine_plan = await _prestarted(workshop, engine, f"r{number}", asleep)
                restoring = asyncio.ensure_future(engine.restore(prestarted, machine_plan, None))
                await asyncio.sleep(delay_s)
                restoring.cancel()
                for machine in await asyncio.gather(restoring, return_exceptions=True):
                    if isinstance(machine, Machine):
                        await machine.kill()
                # If the restore is cancelled before it began, the caller still owns it.
                await prestarted.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_what_was_prestarted_is_a_machine_like_any_other(self, workshop: PrestartWorkshop) -> None:
        claimed(workshop, Prestarting)

        async def test() -> None:
            before = workshop.ledger()
            asleep = await _asleep(workshop)
            engine = workshop.engine()
            assert isinstance(engine, Prestarting)
            prestarted, plan = await _prestarted(workshop, engine, "m2", asleep)
            machine = await _restored(engine, prestarted, plan)
            await ticks_beyond(workshop, plan, asleep.counted)
            await machine.pause()
            if isinstance(engine, DetachableFiles):
                await engine.detach_files(machine)
                same = workshop.plan("unused", like=plan)
                plan.rootfs.rename(workshop.directory() / "old")
                same.rootfs.rename(plan.rootfs)
                await engine.attach_files(machine, plan)
            into = workshop.directory()
            await machine.checkpoint(into)
            await machine.resume()
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number + 1)
            assert await engine.started("m2", plan.state_dir, plan.limits) == machine.record()
            adopted = await workshop.engine().adopt(machine.record())
            assert adopted is not None
            await adopted.kill()
            async with asyncio.timeout(PATIENCE_S):
                await machine.wait()
            await machine.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)


async def _asleep(workshop: Workshop) -> _Asleep:
    plan = workshop.plan("m1")
    machine = await workshop.engine().start(plan)
    await ticks_beyond(workshop, plan, 2)
    memory = workshop.directory()
    await machine.pause()
    await machine.checkpoint(memory)
    await machine.kill()
    return _Asleep(plan, memory, workshop.ticks(plan)[-1].number)


async def _ready(workshop: PrestartWorkshop) -> _Ready:
    asleep = await _asleep(workshop)
    before = workshop.ledger()
    engine = workshop.engine()
    assert isinstance(engine, Prestarting)
    return _Ready(engine, engine, asleep, before, *await _prestarted(workshop, engine, "m2", asleep))


async def _prestarted(
    workshop: PrestartWorkshop, engine: Prestarting, machine_id: str, asleep: _Asleep
) -> tuple[PrestartedMachine, MachinePlan]:
    """Make a prestarted machine, and the plan that restores the guest in it."""
    prestarted_plan = workshop.prestarted_plan(machine_id, asleep.plan)
    prestarted = await engine.prestart(prestarted_plan)
    plan = msgspec.structs.replace(
        workshop.plan(machine_id, like=asleep.plan),
        state_dir=prestarted_plan.state_dir,
        checkpoint=asleep.memory,
    )
    return prestarted, plan


async def _restored(engine: Prestarting, prestarted: PrestartedMachine, plan: MachinePlan) -> Machine:
    machine = await engine.restore(prestarted, plan, None)
    assert machine is not None
    return machine
