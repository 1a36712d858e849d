"""The capabilities of engines, as test classes that ``EngineConformance`` inherits."""

# ruff: noqa: D102  (the names of the tests say it)

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator

import msgspec
import pytest

from atoll.engines import (
    AdjustableLimits,
    DetachableFiles,
    DiskBudget,
    DiskGrowth,
    LatePages,
    MachinePlan,
    MemoryReadings,
)
from atoll.errors import EngineError
from atoll.testing.workshop import (
    FILE_BYTES,
    Workshop,
    assert_frozen,
    booted,
    claimed,
    counts_without_a_gap,
    restoring,
    ticks_beyond,
)

# how long a guest that fills its disk may take for one more line
REFUSED_S = 2.0
_HELD_BYTES = 64 << 20


def _files(workshop: Workshop) -> DetachableFiles:
    engine = workshop.engine()
    assert isinstance(engine, DetachableFiles)
    return engine


class FilesConformance:
    """Tests of ``DetachableFiles``. ``EngineConformance`` inherits them."""

    def test_a_paused_machine_goes_on_upon_another_root_with_the_same_files(self, workshop: Workshop) -> None:
        claimed(workshop, DetachableFiles)

        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await booted(workshop)
            ended = asyncio.ensure_future(machine.wait())
            for _ in range(2):
                await machine.pause()
                await _files(workshop).detach_files(machine)
                same = workshop.plan("unused", like=plan)
                old = workshop.directory() / "old"
                plan.rootfs.rename(old)
                same.rootfs.rename(plan.rootfs)
                last = workshop.ticks(plan)[-1].number
                await _files(workshop).attach_files(machine, plan)
                await assert_frozen(workshop, plan)
                await machine.resume()
                await ticks_beyond(workshop, plan, last + 1)
                assert counts_without_a_gap(workshop.ticks(plan))
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
        claimed(workshop, DetachableFiles)

        async def test() -> None:
            plans = [workshop.plan(name) for name in ("m1", "m2", "m3")]
            machines = await asyncio.gather(*(workshop.engine().start(plan) for plan in plans))
            for plan, machine in zip(plans, machines, strict=True):
                await ticks_beyond(workshop, plan, 1)
                await machine.pause()
                await _files(workshop).detach_files(machine)
                await _files(workshop).attach_files(machine, plan)
                await machine.resume()
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
                await machine.kill()

        workshop.run(test)

    def test_a_machine_without_its_files_can_be_killed(self, workshop: Workshop) -> None:
        claimed(workshop, DetachableFiles)

        async def test() -> None:
            before = workshop.ledger()
            _, machine = await booted(workshop)
            ended = asyncio.ensure_future(machine.wait())
            await machine.pause()
            await _files(workshop).detach_files(machine)
            assert not ended.done()
            await machine.kill()
            await ended
            assert workshop.ledger().processes == before.processes

        workshop.run(test)

    def test_a_root_that_is_not_there_is_an_error_and_the_machine_can_be_killed(
        self, workshop: Workshop
    ) -> None:
        claimed(workshop, DetachableFiles)

        async def test() -> None:
            before = workshop.ledger()
            plan, machine = await booted(workshop)
            await machine.pause()
            await _files(workshop).detach_files(machine)
            plan.rootfs.rename(workshop.directory() / "elsewhere")
            with pytest.raises(EngineError):
                await _files(workshop).attach_files(machine, plan)
            await machine.wait()
            await machine.kill()
            assert workshop.ledger().processes == before.processes

        workshop.run(test)


class LatePagesConformance:
    """Tests of ``LatePages``. ``EngineConformance`` inherits them."""

    def test_a_checkpoint_that_is_written_late_is_of_its_moment(self, workshop: Workshop) -> None:
        claimed(workshop, LatePages)

        async def test() -> None:
            plan, machine = await booted(workshop)
            assert isinstance(machine, LatePages)
            into = workshop.directory()
            await machine.pause()
            await machine.checkpoint_late(into)
            last = workshop.ticks(plan)[-1].number
            copy_plan = restoring(workshop, "m2", plan, into)
            await machine.resume()
            await ticks_beyond(workshop, plan, last + 2)
            await machine.written()
            copy = await workshop.engine().start(copy_plan)
            await ticks_beyond(workshop, copy_plan, last)
            assert counts_without_a_gap(workshop.ticks(copy_plan))
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            assert counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()
            await copy.kill()

        workshop.run(test)

    def test_a_checkpoint_that_was_prepared_is_of_its_moment_too(self, workshop: Workshop) -> None:
        claimed(workshop, LatePages)

        async def test() -> None:
            plan, machine = await booted(workshop)
            assert isinstance(machine, LatePages)
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
            woken_plan = restoring(workshop, "m2", plan, into)
            woken = await workshop.engine().start(woken_plan)
            assert isinstance(woken, LatePages)
            await woken.prepare()
            await ticks_beyond(workshop, woken_plan, last + 1)
            assert counts_without_a_gap(workshop.ticks(woken_plan))
            await woken.kill()

        workshop.run(test)


class DiskBudgetConformance:
    """Tests of ``DiskBudget``. ``EngineConformance`` inherits them."""

    def test_a_guest_goes_on_within_a_budget_and_when_it_has_none_any_more(self, workshop: Workshop) -> None:
        claimed(workshop, DiskBudget)

        async def test() -> None:
            plan, machine = await booted(workshop)
            assert isinstance(machine, DiskBudget)
            for growth in (DiskGrowth(size_bytes=1 << 20, files=10), None):
                await machine.mark_disk()
                await machine.limit_growth(growth)
                await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            assert counts_without_a_gap(workshop.ticks(plan))
            await machine.kill()

        workshop.run(test)

    @pytest.mark.parametrize(
        ("growth", "most"),
        [
            (DiskGrowth(size_bytes=4 * FILE_BYTES, files=100), 4),
            (DiskGrowth(size_bytes=64 << 20, files=2), 2),
        ],
        ids=["bytes", "files"],
    )
    def test_a_guest_writes_no_more_than_its_budget_and_the_end_of_it_is_told(
        self, workshop: Workshop, growth: DiskGrowth, most: int
    ) -> None:
        claimed(workshop, DiskBudget)

        async def test() -> None:
            plan = workshop.filling_disk(workshop.plan("m1"))
            machine = await workshop.engine().start(plan)
            assert isinstance(machine, DiskBudget)
            await ticks_beyond(workshop, plan, 2)
            await machine.pause()
            with _eventfd() as event_fd:
                await machine.mark_disk()
                last = workshop.ticks(plan)[-1].number
                # The guest may have made one file more, and not yet counted it.
                bound = last + most + 1
                await machine.limit_growth(growth, event_fd)
                await machine.resume()
                await ticks_beyond(workshop, plan, last)
                assert await _last_of_all(workshop, plan, bound) <= bound
                assert _is_signalled(event_fd)
                # Only the budget was the reason to refuse a write.
                await machine.limit_growth(None)
                await ticks_beyond(workshop, plan, bound)
                await machine.kill()

        workshop.run(test)


@contextlib.contextmanager
def _eventfd() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_signalled(event_fd: int) -> bool:
    try:
        return os.eventfd_read(event_fd) > 0
    except BlockingIOError:
        return False


async def _last_of_all(workshop: Workshop, plan: MachinePlan, most: int) -> int:
    """The number at which the guest stops to count, or the first one above ``most``."""
    last, since_s = -1, time.monotonic()
    while time.monotonic() < since_s + REFUSED_S:
        number = workshop.ticks(plan)[-1].number
        if number > most:
            return number
        if number > last:
            last, since_s = number, time.monotonic()
        await asyncio.sleep(0.02)
    return last


class AdjustableLimitsConformance:
    """Tests of ``AdjustableLimits``. ``EngineConformance`` inherits them."""

    def test_a_guest_goes_on_under_other_limits(self, workshop: Workshop) -> None:
        claimed(workshop, AdjustableLimits)

        async def test() -> None:
            plan, machine = await booted(workshop)
            assert isinstance(machine, AdjustableLimits)
            await machine.limit(msgspec.structs.replace(plan.limits, memory_mib=512))
            await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
            assert (await machine.stats()).memory_limit_bytes == 512 << 20
            await machine.kill()

        workshop.run(test)


class MemoryReadingsConformance:
    """Tests of ``MemoryReadings``. ``EngineConformance`` inherits them."""

    def test_a_guests_memory_is_read_as_it_is_and_has_not_hit_its_limit(self, workshop: Workshop) -> None:
        claimed(workshop, MemoryReadings)

        async def test() -> None:
            readings = []
            for name, size_bytes in (("m1", 0), ("m2", _HELD_BYTES)):
                plan = workshop.plan(name)
                if size_bytes:
                    plan = workshop.filling_memory(plan, size_bytes)
                machine = await workshop.engine().start(plan)
                assert isinstance(machine, MemoryReadings)
                await ticks_beyond(workshop, plan, 2)
                readings.append(machine.memory_bytes())
                assert not machine.hit_memory_limit()
                await machine.kill()
            if readings == [None, None]:  # this host cannot tell
                return
            less, more = readings
            assert less is not None
            assert more is not None
            assert abs(more - less - _HELD_BYTES) < _HELD_BYTES // 2

        workshop.run(test)

    def test_a_guest_that_the_host_ends_for_its_memory_has_hit_its_limit(self, workshop: Workshop) -> None:
        claimed(workshop, MemoryReadings)

        async def test() -> None:
            plan = workshop.filling_memory(workshop.plan("m1"), 4 * _HELD_BYTES)
            limits = msgspec.structs.replace(plan.limits, memory_mib=2 * _HELD_BYTES >> 20)
            plan = msgspec.structs.replace(plan, limits=limits)
            machine = await workshop.engine().start(plan)
            assert isinstance(machine, MemoryReadings)
            ended = asyncio.ensure_future(machine.wait())
            going_on = asyncio.ensure_future(ticks_beyond(workshop, plan, 2))
            await asyncio.wait({ended, going_on}, return_when=asyncio.FIRST_COMPLETED)
            # A host may be unable to hold the limit. The guest then goes on, and has hit nothing.
            assert machine.hit_memory_limit() == ended.done()
            going_on.cancel()
            await machine.kill()
            await ended

        workshop.run(test)
