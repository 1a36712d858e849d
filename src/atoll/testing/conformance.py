"""The engine contract, as one test class that each engine's tests inherit."""

# ruff: noqa: D102  (the names of the tests say it)

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from atoll.engines import Engine, Machine, MachinePlan
from atoll.errors import EngineError
from atoll.testing.ledger import Ledger

PATIENCE_S = 120.0


class Tick(NamedTuple):
    """A line that the guest wrote: its host name at that time, and how many lines it had written before."""

    hostname: str
    number: int


class Workshop(Protocol):
    """What the tests of one engine provide.

    The guest of a plan has a process 1 that never ends. Several times a second it appends a line with its
    host name and a number to a file on its disk. The number is kept in memory and counts up by one.
    """

    def engine(self) -> Engine:
        """Return a new engine object for this host."""

    def plan(self, machine_id: str, *, like: MachinePlan | None = None) -> MachinePlan:
        """Return a plan that boots that guest as ``machine_id``, in its own network namespace and directory.

        Its disk is new. With ``like`` it is a copy of that plan's disk as it is now, at another path.
        """

    def directory(self) -> Path:
        """Return a new empty directory."""

    def ticks(self, plan: MachinePlan) -> list[Tick]:
        """Return what the guest has written so far to the disk of ``plan``."""

    def ledger(self) -> Ledger:
        """Return what this workshop's machines have on the host now."""

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        """Run the test in an event loop in which engines of this kind can work."""


async def ticks_beyond(workshop: Workshop, plan: MachinePlan, number: int) -> Tick:
    """Wait until the guest has counted beyond ``number``, and return its newest line.

    Raises:
        TimeoutError: It did not within ``PATIENCE_S``.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ticks = workshop.ticks(plan)
            if ticks and ticks[-1].number > number:
                return ticks[-1]
            await asyncio.sleep(0.01)


class FilesConformance:
    """Tests that a machine closes its files and opens them again. ``EngineConformance`` inherits them."""

    def test_a_paused_machine_goes_on_upon_another_root_with_the_same_files(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await _booted(workshop)
            ended = asyncio.ensure_future(machine.wait())
            for _ in range(2):
                await machine.pause()
                await workshop.engine().detach_files(machine)
                same = workshop.plan("unused", like=plan)
                old = workshop.directory() / "old"
                plan.rootfs.rename(old)
                same.rootfs.rename(plan.rootfs)
                last = workshop.ticks(plan)[-1].number
                await workshop.engine().attach_files(machine, plan)
                await _assert_frozen(workshop, plan)
                await machine.resume()
                await ticks_beyond(workshop, plan, last + 1)
                assert _counts_without_a_gap(workshop.ticks(plan))
                assert workshop.ticks(msgspec.structs.replace(plan, rootfs=old))[-1].number == last
                assert not ended.done()
            adopted = await workshop.engine().adopt(machine.record())
            assert adopted is not None
            await adopted.kill()
            await ended
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_machines_that_were_started_beside_each_other_find_their_files_again(
        self, workshop: Workshop
    ) -> None:
        async def test() -> None:
            plans = [workshop.plan(name) for name in ("m1", "m2", "m3")]
            machines = await asyncio.gather(*(workshop.engine().start(plan) for plan in plans))
            for plan, machine in zip(plans, machines, strict=True):
                await ticks_beyond(workshop, plan, 1)
                await machine.pause()
                await workshop.engine().detach_files(machine)
                await workshop.engine().attach_files(machine, plan)
                await machine.resume()
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
                await machine.kill()

        workshop.run(test)

    def test_a_machine_without_its_files_can_be_killed(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            _, machine = await _booted(workshop)
            ended = asyncio.ensure_future(machine.wait())
            await machine.pause()
            await workshop.engine().detach_files(machine)
            assert not ended.done()
            await machine.kill()
            await ended
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_a_root_that_is_not_there_is_an_error_and_the_machine_can_be_killed(
        self, workshop: Workshop
    ) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await _booted(workshop)
            await machine.pause()
            await workshop.engine().detach_files(machine)
            plan.rootfs.rename(workshop.directory() / "elsewhere")
            with pytest.raises(EngineError):
                await workshop.engine().attach_files(machine, plan)
            await machine.wait()
            await machine.kill()
            assert workshop.ledger().processes == before.processes

        workshop.run(test)


class EngineConformance(FilesConformance):
    """Tests of the engine contract, which pause, checkpoint and kill real machines.

    Inherit it and provide the fixture ``workshop``.
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
            plan, machine = await _booted(workshop)
            await machine.pause()
            await _assert_frozen(workshop, plan)
            await machine.resume()
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await machine.kill()

        workshop.run(test)

    def test_a_paused_machine_can_be_killed(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            _, machine = await _booted(workshop)
            await machine.pause()
            await machine.kill()
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_a_machine_goes_on_after_a_live_checkpoint_and_a_copy_starts_from_it(
        self, workshop: Workshop
    ) -> None:
        async def test() -> None:
            plan, machine = await _booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into)
            await _assert_frozen(workshop, plan)
            last = workshop.ticks(plan)[-1].number
            copy_plan = _restoring(workshop, "m2", plan, into)
            copy = await workshop.engine().start(copy_plan)
            # The guest may have read the host name for the next line before it was frozen.
            assert (await ticks_beyond(workshop, copy_plan, last + 1)).hostname == "m2"
            assert _counts_without_a_gap(workshop.ticks(copy_plan))
            await _assert_frozen(workshop, plan)
            await machine.resume()
            assert (await ticks_beyond(workshop, plan, last)).hostname == "m1"
            assert _counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()
            await copy.kill()

        workshop.run(test)

    def test_a_guest_that_is_not_paused_in_time_stands_still_all_the_same(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await _booted(workshop)
            for _ in range(3):
                await machine.pause(within_s=0)
                await machine.pause(within_s=0)
                await _assert_frozen(workshop, plan)
                await machine.resume()
                await machine.resume()
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await machine.pause(within_s=0)
            last = workshop.ticks(plan)[-1].number
            into = workshop.directory()
            await machine.checkpoint(into)
            await _assert_frozen(workshop, plan)
            copy_plan = _restoring(workshop, "m2", plan, into)
            copy = await workshop.engine().start(copy_plan)
            await ticks_beyond(workshop, copy_plan, last)
            await copy.pause(within_s=0)
            adopted = await workshop.engine().adopt(copy.record())
            assert adopted is not None
            await _assert_frozen(workshop, copy_plan)
            await adopted.resume()
            await ticks_beyond(workshop, copy_plan, workshop.ticks(copy_plan)[-1].number)
            for stopped in (machine, adopted):
                await stopped.pause(within_s=0)
                await stopped.kill()
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_a_checkpoint_that_is_written_late_is_of_its_moment(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await _booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into, late=True)
            last = workshop.ticks(plan)[-1].number
            copy_plan = _restoring(workshop, "m2", plan, into)
            await machine.resume()
            await ticks_beyond(workshop, plan, last + 2)
            await machine.written()
            copy = await workshop.engine().start(copy_plan)
            await ticks_beyond(workshop, copy_plan, last)
            assert _counts_without_a_gap(workshop.ticks(copy_plan))
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            assert _counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()
            await copy.kill()

        workshop.run(test)

    def test_a_checkpoint_that_was_prepared_is_of_its_moment_too(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await _booted(workshop)
            forgotten, into = workshop.directory(), workshop.directory()
            await machine.prepare(forgotten)
            await machine.pause()
            await machine.resume()
            await machine.prepare(into)
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number + 2)
            await machine.pause()
            await machine.checkpoint(into)
            await machine.kill()
            last = workshop.ticks(plan)[-1].number
            woken_plan = _restoring(workshop, "m2", plan, into)
            woken = await workshop.engine().start(woken_plan)
            await woken.prepare()
            await ticks_beyond(workshop, woken_plan, last + 1)
            assert _counts_without_a_gap(workshop.ticks(woken_plan))
            await woken.kill()

        workshop.run(test)

    def test_a_running_machine_is_checkpointed_again_and_again(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await _booted(workshop)
            for _ in range(3):
                await machine.checkpoint(workshop.directory())
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            assert _counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()

        workshop.run(test)

    def test_a_suspended_machine_has_ended_and_goes_on_under_another_name_and_path(
        self, workshop: Workshop
    ) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await _booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into, durable=True)
            await machine.kill()
            assert workshop.ledger().processes == before.processes
            last = workshop.ticks(plan)[-1].number
            woken_plan = _restoring(workshop, "m2", plan, into)
            woken = await workshop.engine().start(woken_plan)
            # The guest may have read the host name for the next line before it was suspended.
            assert (await ticks_beyond(workshop, woken_plan, last + 1)).hostname == "m2"
            assert _counts_without_a_gap(workshop.ticks(woken_plan))
            again = workshop.directory()
            await woken.checkpoint(again)
            await woken.kill()

        workshop.run(test)

    def test_two_machines_of_one_checkpoint_run_beside_each_other(self, workshop: Workshop) -> None:
        async def test() -> None:
            plan, machine = await _booted(workshop)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint(into, durable=True)
            await machine.kill()
            last = workshop.ticks(plan)[-1].number
            engine = workshop.engine()
            plans = [_restoring(workshop, name, plan, into) for name in ("m2", "m3")]
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
            plan, machine = await _booted(workshop)
            with pytest.raises((EngineError, OSError)):
                await machine.checkpoint(workshop.directory() / "missing", durable=True)
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            await machine.kill()

        workshop.run(test)

    def test_another_engine_object_takes_over_a_running_machine(self, workshop: Workshop) -> None:
        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await _booted(workshop)
            adopted = await workshop.engine().adopt(machine.record())
            assert adopted is not None
            assert adopted.record() == machine.record()
            asked = (plan.machine_id, plan.state_dir, plan.limits)
            assert await workshop.engine().started(*asked) == machine.record()
            await adopted.pause()
            await _assert_frozen(workshop, plan)
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
            _, machine = await _booted(workshop)
            stats = await machine.stats()
            assert stats.memory_bytes
            assert stats.cpu_s
            await machine.kill()

        workshop.run(test)


async def _booted(workshop: Workshop) -> tuple[MachinePlan, Machine]:
    plan = workshop.plan("m1")
    machine = await workshop.engine().start(plan)
    await ticks_beyond(workshop, plan, 2)
    return plan, machine


def _restoring(workshop: Workshop, machine_id: str, like: MachinePlan, checkpoint: Path) -> MachinePlan:
    return msgspec.structs.replace(workshop.plan(machine_id, like=like), checkpoint=checkpoint)


async def _assert_frozen(workshop: Workshop, plan: MachinePlan) -> None:
    """Check that the guest stands still. A running guest would write several lines in that time."""
    before = workshop.ticks(plan)
    until_s = time.monotonic() + 0.3
    while time.monotonic() < until_s:
        assert workshop.ticks(plan) == before
        await asyncio.sleep(0.02)


def _counts_without_a_gap(ticks: list[Tick]) -> bool:
    return [tick.number for tick in ticks] == list(range(len(ticks)))
