"""What an engine must do that keeps spares."""

# ruff: noqa: D102  (the names of the tests say it)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from atoll.engines import Engine, Machine, MachinePlan, Spare, SparePlan
from atoll.errors import EngineError
from atoll.testing.conformance import PATIENCE_S, Workshop, ticks_beyond


class SpareWorkshop(Workshop, Protocol):
    """What these tests need beside."""

    def spare_plan(self, machine_id: str, like: MachinePlan) -> SparePlan:
        """A plan for a spare that ``like`` can be restored into, but for its name, paths and network."""

    def end_a_process_of(self, spare: Spare) -> None:
        """Kill one of the host's processes that a spare consists of."""


class _Asleep(NamedTuple):
    """A guest that was checkpointed and ended: its plan, where its memory is, and how far it had counted."""

    plan: MachinePlan
    memory: Path
    counted: int


class SpareConformance:
    """Inherit it and provide the fixture ``workshop``."""

    def test_a_guest_goes_on_in_a_spare_under_its_own_name(self, workshop: SpareWorkshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            asleep = await _asleep(workshop)
            engine = workshop.engine()
            # Two at once: each has its own disk.
            plans = []
            for name in ("m2", "m3"):
                spare, plan = await _spare(workshop, engine, name, asleep)
                plans.append((plan, await _restored(engine, spare, plan)))
            for plan, _ in plans:
                assert (await ticks_beyond(workshop, plan, asleep.counted + 1)).hostname == plan.hostname
                ticks = workshop.ticks(plan)
                assert [tick.number for tick in ticks] == list(range(len(ticks)))
            for _, machine in plans:
                await machine.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_a_spare_that_nobody_took_leaves_nothing(self, workshop: SpareWorkshop) -> None:
        async def test() -> None:
            asleep = await _asleep(workshop)
            before = workshop.ledger()
            engine = workshop.engine()
            spare, plan = await _spare(workshop, engine, "m2", asleep)
            # Its owner may die before it says what to restore: it is no machine then.
            assert await engine.started("m2", plan.state_dir, plan.limits) is None
            await spare.kill()
            await spare.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_a_spare_that_has_ended_is_none_and_the_guest_can_be_started_without(
        self, workshop: SpareWorkshop
    ) -> None:
        async def test() -> None:
            asleep = await _asleep(workshop)
            before = workshop.ledger()
            engine = workshop.engine()
            spare, plan = await _spare(workshop, engine, "m2", asleep)
            workshop.end_a_process_of(spare)
            assert await engine.restore(spare, plan, None) is None
            assert workshop.ledger() == before, (before, workshop.ledger())
            machine = await engine.start(plan)
            await ticks_beyond(workshop, plan, asleep.counted)
            await machine.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_a_memory_that_cannot_be_restored_is_an_error_and_leaves_nothing(
        self, workshop: SpareWorkshop
    ) -> None:
        async def test() -> None:
            asleep = await _asleep(workshop)
            before = workshop.ledger()
            engine = workshop.engine()
            spare, plan = await _spare(workshop, engine, "m2", asleep)
            for file in asleep.memory.iterdir():
                file.write_bytes(b"rubbish")
            with pytest.raises(EngineError):  # noqa: PT012 - an engine may tell it by either of them
                assert await engine.restore(spare, plan, None) is None
                await engine.start(plan)
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_cancelling_a_spare_and_its_use_leaves_nothing(self, workshop: SpareWorkshop) -> None:
        async def test() -> None:
            asleep = await _asleep(workshop)
            before = workshop.ledger()
            engine = workshop.engine()
            for number, delay_s in enumerate((0, 0.01, 0.03)):
                plan = workshop.spare_plan(f"c{number}", asleep.plan)
                making = asyncio.ensure_future(engine.spare(plan))
                await asyncio.sleep(delay_s)
                making.cancel()
                for made in await asyncio.gather(making, return_exceptions=True):
                    if isinstance(made, Spare):
                        await made.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())
            for number, delay_s in enumerate((0, 0.005, 0.02)):
                spare, machine_plan = await _spare(workshop, engine, f"r{number}", asleep)
                restoring = asyncio.ensure_future(engine.restore(spare, machine_plan, None))
                await asyncio.sleep(delay_s)
                restoring.cancel()
                for machine in await asyncio.gather(restoring, return_exceptions=True):
                    if isinstance(machine, Machine):
                        await machine.kill()
                # Cancelled before it began, it is still the caller's.
                await spare.kill()
            assert workshop.ledger() == before, (before, workshop.ledger())

        workshop.run(test)

    def test_what_was_a_spare_is_a_machine_like_any_other(self, workshop: SpareWorkshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            asleep = await _asleep(workshop)
            engine = workshop.engine()
            spare, plan = await _spare(workshop, engine, "m2", asleep)
            machine = await _restored(engine, spare, plan)
            await ticks_beyond(workshop, plan, asleep.counted)
            await machine.pause()
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


async def _spare(
    workshop: SpareWorkshop, engine: Engine, machine_id: str, asleep: _Asleep
) -> tuple[Spare, MachinePlan]:
    """A spare, and the plan that has the guest go on in it."""
    spare_plan = workshop.spare_plan(machine_id, asleep.plan)
    spare = await engine.spare(spare_plan)
    plan = msgspec.structs.replace(
        workshop.plan(machine_id, like=asleep.plan),
        state_dir=spare_plan.state_dir,
        checkpoint=asleep.memory,
    )
    return spare, plan


async def _restored(engine: Engine, spare: Spare, plan: MachinePlan) -> Machine:
    machine = await engine.restore(spare, plan, None)
    assert machine is not None
    return machine
