"""Runs of an evaluation: how many at a time, what ends them, and what goes on later."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from atoll.errors import InvalidSpecError, StateError
from atoll.evals import Evaluation, charge
from atoll.evals.forks import forks_at_once
from tests.unit.evals.forks import CountedForks, Fork, numbers, results_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def itself(fork: Fork, number: Any) -> Any:
    for _ in range(30):  # others begin meanwhile, if they may
        await anyio.lowlevel.checkpoint()
    return number


async def test_every_strategy_runs_as_often_as_asked_and_no_fork_is_left() -> None:
    forks = CountedForks()
    results = await results_of(forks, Evaluation("s1", numbers(3), itself, repeats=2))
    assert [(row.strategy, row.repeat, row.score) for row in results] == [
        (f"n{number}", repeat, number) for number in range(3) for repeat in range(2)
    ]
    assert {(row.status, row.start_hash, row.cpu_s, row.output) for row in results} == {
        ("passed", "hash", 0.5, "")
    }
    assert (forks.made, forks.alive, forks.deleted) == (6, set(), ["s1"])


@pytest.mark.parametrize("at_once", [1, 3, None])
async def test_no_more_forks_live_at_a_time_than_asked(at_once: int | None) -> None:
    forks = CountedForks()
    await results_of(forks, Evaluation("s1", numbers(9), itself, at_once=at_once))
    assert forks.most == (at_once or 2)


async def test_a_run_that_fails_breaks_no_other() -> None:
    async def task(fork: Fork, number: int) -> object:
        if number == 1:
            raise ValueError("bad")
        if number == 2:
            assert number == 3
        if number == 3:
            raise SystemExit(1)
        return object() if number == 4 else number

    forks = CountedForks(6)
    results = await results_of(forks, Evaluation("s1", numbers(7), task, at_once=1))
    statuses = ["passed", "error", "failed", "error", "error", "error", "passed"]
    assert [row.status for row in results] == statuses
    assert results[1].error == "ValueError: bad"
    assert results[1].output == "its log"
    assert results[5].error == "NoSpaceError: the disk is full"
    assert results[5].sandbox_id is None
    assert forks.alive == set()


async def test_a_run_that_takes_too_long_is_ended() -> None:
    async def task(fork: Fork, number: int) -> int:
        if number:
            await anyio.sleep_forever()
        return number

    forks = CountedForks()
    results = await results_of(forks, Evaluation("s1", numbers(2), task, timeout_s=0.01))
    assert [row.status for row in results] == ["passed", "timeout"]
    assert forks.alive == set()


async def test_when_all_take_too_long_what_runs_is_stopped_and_nothing_more_starts() -> None:
    async def task(fork: Fork, number: int) -> int:
        if number:
            await anyio.sleep_forever()
        return number

    forks = CountedForks()
    results = await results_of(forks, Evaluation("s1", numbers(4), task, at_once=1, within_s=1))
    assert [row.status for row in results] == ["passed", "stopped", "skipped", "skipped"]
    assert results[3].error == "all runs together took longer than 1 s"
    assert forks.alive == set()
    assert forks.deleted == []


async def test_a_spent_budget_stops_what_runs_but_not_the_run_that_spent_the_last_of_it() -> None:
    async def task(fork: Fork, number: int) -> int:
        if number == 0:
            await anyio.sleep_forever()
        charge(2)
        await anyio.lowlevel.checkpoint()
        return number

    results = await results_of(CountedForks(), Evaluation("s1", numbers(5), task, at_once=2, budget=4))
    assert [(row.status, row.cost) for row in results] == [
        ("stopped", 0),
        ("passed", 2),
        ("passed", 2),
        ("skipped", 0),
        ("skipped", 0),
    ]
    assert results[0].error == "the budget is spent"


async def test_a_run_that_charges_beyond_the_budget_is_stopped() -> None:
    async def task(fork: Fork, number: int) -> None:
        while True:
            charge(3)
            await anyio.lowlevel.checkpoint()

    (row,) = await results_of(CountedForks(), Evaluation("s1", {"greedy": 0}, task, budget=4))
    assert row.status == "stopped"
    assert 6 <= row.cost <= 9  # a cancellation comes at the next step of the event loop


async def test_only_runs_can_be_charged() -> None:
    with pytest.raises(InvalidSpecError):
        charge(1)
    charging = anyio.Event()

    async def task(fork: Fork, number: int) -> None:
        async def late() -> None:
            await charging.wait()
            with pytest.raises(StateError):
                charge(1)

        group.start_soon(late)

    async with anyio.create_task_group() as group:
        (row,) = await results_of(CountedForks(), Evaluation("s1", {"x": 0}, task))
        charging.set()
    assert row.cost == 0


async def test_each_run_gets_a_strategy_of_its_own() -> None:
    async def task(fork: Fork, strategy: dict[str, list[int]]) -> int:
        strategy["seen"].append(1)
        return len(strategy["seen"])

    results = await results_of(CountedForks(), Evaluation("s1", {"x": {"seen": []}}, task, repeats=3))
    assert [row.score for row in results] == [1, 1, 1]


async def test_what_has_ended_is_not_run_again_and_what_was_cut_off_is(tmp_path: Path) -> None:
    ran: list[int] = []

    async def task(fork: Fork, number: int) -> int:
        ran.append(number)
        charge(1)
        if number == 2 and ran.count(2) == 1:
            await anyio.sleep_forever()
        return number

    forks, path = CountedForks(), tmp_path / "journal"
    # the first two take milliseconds
    first = await results_of(forks, Evaluation("s1", numbers(4), task, at_once=1, within_s=3), path)
    assert [row.status for row in first] == ["passed", "passed", "stopped", "skipped"]
    forks.alive.add("left")  # by a process that was killed
    second = await results_of(forks, Evaluation("s1", numbers(4), task, at_once=1), path)
    assert [row.status for row in second] == ["passed"] * 4
    assert ran == [0, 1, 2, 2, 3]
    assert (forks.alive, forks.deleted) == (set(), ["s1"])
    third = await results_of(forks, Evaluation("s1", numbers(4), task, repeats=2, budget=5), path)
    assert {row.status for row in third[1::2]} == {"skipped"}  # what was charged before counts
    assert ran == [0, 1, 2, 2, 3]


async def test_the_best_fork_so_far_is_kept() -> None:
    forks = CountedForks()
    strategies = {"two": 2, "one": 1, "three": 3, "again": 3}
    results = await results_of(forks, Evaluation("s1", strategies, itself, keep="best"))
    best = results.best()
    assert best is not None
    assert [row.strategy for row in results if row.kept] == [best.strategy] == ["three"]
    assert forks.asleep == forks.alive == {best.sandbox_id}


async def test_the_forks_that_failed_are_kept() -> None:
    async def task(fork: Fork, number: int) -> bool:
        return number % 2 == 0

    forks = CountedForks()
    results = await results_of(forks, Evaluation("s1", numbers(4), task, keep="failed"))
    assert [row.kept for row in results] == [False, True, False, True]
    assert len(forks.asleep) == 2


async def test_an_error_of_the_callers_own_and_a_cancellation_leave_no_fork() -> None:
    async def waiting(fork: Fork, number: int) -> int:
        if number:
            await anyio.sleep_forever()
        return number

    def broken(row: object) -> None:
        raise ZeroDivisionError

    forks = CountedForks()
    with pytest.raises(ZeroDivisionError):
        await results_of(forks, Evaluation("s1", numbers(3), waiting, on_row=broken, keep="best"))
    assert (forks.alive, forks.deleted) == (set(), ["s1"])
    forks = CountedForks()
    with anyio.move_on_after(0.02) as scope:
        await results_of(forks, Evaluation("s1", numbers(3), waiting))
    assert scope.cancelled_caught
    assert (forks.alive, forks.deleted) == (set(), ["s1"])


async def test_a_blocking_task_is_called_in_a_thread_and_may_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    from atoll.types import Limits, SandboxInfo

    info = SandboxInfo(
        sandbox_id="fork1",
        name=None,
        image="base",
        state="running",
        created_at=0.0,
        changed_at=0.0,
        env={},
        metadata={},
        network="none",
        limits=Limits(),
        user="user",
        cwd="/",
    )

    async def told(self: Fork) -> SandboxInfo:
        return info

    monkeypatch.setattr(Fork, "info", told, raising=False)

    def task(sandbox: Any, number: int) -> int:
        charge(1)
        return int(threading.current_thread() is not threading.main_thread() and sandbox.id == "fork1")

    (row,) = await results_of(CountedForks(), Evaluation("s1", {"x": 0}, task, budget=1))
    assert (row.status, row.score, row.cost) == ("passed", 1, 1)


def test_how_many_forks_a_host_can_have() -> None:
    gib = 1 << 30
    assert forks_at_once(2, 64 * gib, 10 << 20) == 8
    assert forks_at_once(64, 4 * gib, gib) == 1
    assert forks_at_once(1, 0, gib) == 1
    assert forks_at_once(4, None, gib) == 16


@pytest.mark.parametrize(
    "given",
    [
        {"strategies": {}},
        {"strategies": {"x": object()}},
        {"strategies": {"x": float}},
        {"task": None},
        {"repeats": 0},
        {"at_once": 0},
        {"timeout_s": None},
        {"within_s": -1},
        {"budget": float("nan")},
        {"keep": "all"},
    ],
)
def test_what_cannot_be_evaluated_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError):
        Evaluation(**{"state": "s1", "strategies": {"x": 1}, "task": itself, **given})
