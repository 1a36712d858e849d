"""The engine contract, as one test class that each engine's tests inherit."""

# ruff: noqa: D102  (the names of the tests say it)

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from atoll.errors import EngineError
from atoll.testing.capability_conformance import (
    AdjustableLimitsConformance,
    DiskBudgetConformance,
    FilesConformance,
    LatePagesConformance,
    MemoryReadingsConformance,
)
from atoll.testing.workshop import (
    PATIENCE_S,
    Workshop,
    assert_frozen,
    booted,
    counts_without_a_gap,
    restoring,
    ticks_beyond,
)


class EngineConformance(
    FilesConformance,
    LatePagesConformance,
    DiskBudgetConformance,
    AdjustableLimitsConformance,
    MemoryReadingsConformance,
):
    """Tests of the engine contract, which pause, checkpoint and kill machines.

    Inherit it and provide the fixture ``workshop``. It skips the tests of capabilities that the engine does
    not claim. The tests of prestarted machines are in ``PrestartedConformance``.
    """

    def test_a_booted_machine_runs_process_1_until_it_is_killed(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan = workshop.plan("m1")
            before = workshop.ledger()
            machine = await workshop.engine().start(plan)
            assert (await ticks_beyond(workshop, plan, 2)).hostname == "m1"
            await machine.kill()
            assert workshop.ledger() == before
            await machine.kill()
            await machine.wait()

        workshop.run(test)

    def test_a_paused_machine_stands_still_and_goes_on_when_resumed(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await booted(workshop)
            await machine.pause()
            await assert_frozen(workshop, plan)
            await machine.resume()
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await machine.kill()

        workshop.run(test)

    def test_a_paused_machine_can_be_killed(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            _, machine = await booted(workshop)
            await machine.pause()
            await machine.kill()
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_a_machine_goes_on_after_a_live_checkpoint_and_a_copy_starts_from_it(
        self, workshop: Workshop
    ) -> None:
        async def test() -> None:
            plan, machine = await booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into)
            await assert_frozen(workshop, plan)
            last = workshop.ticks(plan)[-1].number
            copy_plan = restoring(workshop, "m2", plan, into)
            copy = await workshop.engine().start(copy_plan)
            # The guest may have read the host name for the next line before it was frozen.
            assert (await ticks_beyond(workshop, copy_plan, last + 1)).hostname == "m2"
            assert counts_without_a_gap(workshop.ticks(copy_plan))
            await assert_frozen(workshop, plan)
            await machine.resume()
            assert (await ticks_beyond(workshop, plan, last)).hostname == "m1"
            assert counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()
            await copy.kill()

        workshop.run(test)

    def test_a_guest_that_is_not_paused_in_time_stands_still_all_the_same(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await booted(workshop)
            for _ in range(3):
                await machine.pause(within_s=0)
                await machine.pause(within_s=0)
                await assert_frozen(workshop, plan)
                await machine.resume()
                await machine.resume()
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await machine.pause(within_s=0)
            last = workshop.ticks(plan)[-1].number
            into = workshop.directory()
            await machine.checkpoint(into)
            await assert_frozen(workshop, plan)
            copy_plan = restoring(workshop, "m2", plan, into)
            copy = await workshop.engine().start(copy_plan)
            await ticks_beyond(workshop, copy_plan, last)
            await copy.pause(within_s=0)
            adopted = await workshop.engine().adopt(copy.record())
            assert adopted is not None
            await assert_frozen(workshop, copy_plan)
            await adopted.resume()
            await ticks_beyond(workshop, copy_plan, workshop.ticks(copy_plan)[-1].number)
            for stopped in (machine, adopted):
                await stopped.pause(within_s=0)
                await stopped.kill()
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_a_running_machine_is_checkpointed_again_and_again(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await booted(workshop)
            for _ in range(3):
                await machine.checkpoint(workshop.directory())
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            assert counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()

        workshop.run(test)

    def test_a_suspended_machine_has_ended_and_goes_on_under_another_name_and_path(
        self, workshop: Workshop
    ) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into, durable=True)
            await machine.kill()
            assert workshop.ledger().processes == before.processes
            last = workshop.ticks(plan)[-1].number
            woken_plan = restoring(workshop, "m2", plan, into)
            woken = await workshop.engine().start(woken_plan)
            # The guest may have read the host name for the next line before it was suspended.
            assert (await ticks_beyond(workshop, woken_plan, last + 1)).hostname == "m2"
            assert counts_without_a_gap(workshop.ticks(woken_plan))
            again = workshop.directory()
            await woken.checkpoint(again)
            await woken.kill()

        workshop.run(test)

    def test_two_machines_of_one_checkpoint_run_beside_each_other(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into, durable=True)
            await machine.kill()
            last = workshop.ticks(plan)[-1].number
            engine = workshop.engine()
            plans = [restoring(workshop, name, plan, into) for name in ("m2", "m3")]
            copies = await asyncio.gather(*(engine.start(copy_plan) for copy_plan in plans))
            for copy_plan in plans:
                tick = await ticks_beyond(workshop, copy_plan, last + 2)
                assert tick.hostname == copy_plan.machine_id
            for copy in copies:
                await copy.kill()

        workshop.run(test)

    @pytest.mark.parametrize("delay_s", [0, 0.01, 0.03, 0.1])
    def test_cancelling_start_leaves_nothing(self, workshop: Workshop, delay_s: float) -> None:
        async def test() -> None:
            plan = workshop.plan("m1")
            before = workshop.ledger()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    machine = await workshop.engine().start(plan)
                    await machine.kill()
            assert workshop.ledger() == before

        workshop.run(test)

    def test_a_start_that_fails_says_why_and_leaves_nothing(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan = workshop.plan("m1")
            before = workshop.ledger()
            with pytest.raises(EngineError, match="no-such-program"):
                await workshop.engine().start(msgspec.structs.replace(plan, argv=("/no-such-program",)))
            assert workshop.ledger() == before

        workshop.run(test)

    def test_a_checkpoint_that_fails_leaves_the_machine_running(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await booted(workshop)
            with pytest.raises((EngineError, OSError)):
                await machine.checkpoint(workshop.directory() / "missing", durable=True)
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await machine.kill()

        workshop.run(test)

    def test_another_engine_object_takes_over_a_running_machine(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await booted(workshop)
            adopted = await workshop.engine().adopt(machine.record())
            assert adopted is not None
            assert adopted.record() == machine.record()
            asked = (plan.machine_id, plan.state_dir, plan.limits)
            assert await workshop.engine().started(*asked) == machine.record()
            await adopted.pause()
            await assert_frozen(workshop, plan)
            await adopted.resume()
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await adopted.kill()
            async with asyncio.timeout(PATIENCE_S):
                await machine.wait()
            assert workshop.ledger().processes == before.processes
            assert await workshop.engine().adopt(machine.record()) is None
            assert await workshop.engine().started(*asked) is None
            await machine.kill()

        workshop.run(test)

    def test_the_host_tells_a_machines_memory_and_processor_time(self, workshop: Workshop) -> None:
        async def test() -> None:
            _, machine = await booted(workshop)
            stats = await machine.stats()
            assert stats.memory_bytes
            assert stats.cpu_s
            await machine.kill()

        workshop.run(test)
