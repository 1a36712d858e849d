"""Evaluations on real forks: one state, results as rows, and nothing left, whatever happens to the process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import AsyncSandbox, Sandbox, Snapshots
from atoll.evals import Evaluation, Results, charge

PROGRAM = Path(__file__).parent / "evaluating_program.py"
BOUND_S = 60.0


@pytest.fixture(scope="module")
def prepared(module_home: Path) -> Iterator[Sandbox]:
    """The sandbox that evaluations begin from: with a file, and with a program that remembers."""
    with Sandbox.create(name="prepared") as sandbox:
        sandbox.files.write("/tmp/number", "41")
        yield sandbox


def only_prepared_is_left() -> bool:
    end = time.monotonic() + BOUND_S
    while [info.name for info in Sandbox.list()] != ["prepared"]:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return Snapshots.list() == []


def test_strategies_run_in_forks_of_one_state_and_leave_none(prepared: Sandbox) -> None:
    def task(sandbox: Sandbox, more: int) -> object:
        if more == 0:
            return sandbox.run("echo wrong; exit 3")
        if more == 2:
            raise ValueError("\x1b[31mred")
        sandbox.run(f"echo $(($(cat /tmp/number) + {more})) >/tmp/number").check()
        return float(sandbox.files.read("/tmp/number"))

    results = Evaluation(prepared, {"one": 1, "none": 0, "two": 2}, task, repeats=2, at_once=3).run()
    assert [(row.strategy, row.status, row.score) for row in results] == [
        *[("one", "passed", 42.0)] * 2,
        *[("none", "failed", 0.0)] * 2,
        *[("two", "error", None)] * 2,
    ]
    assert results[2].output == "wrong\n"
    assert results[4].error == "ValueError: \\x1b[31mred"
    assert len({row.start_hash for row in results}) == 1
    assert len({row.sandbox_id for row in results}) == 6
    assert prepared.files.read("/tmp/number") == "41"
    assert only_prepared_is_left()


def test_a_start_hash_names_a_state(prepared: Sandbox) -> None:
    made = [prepared.snapshot("first"), prepared.snapshot("second")]
    try:
        first = Evaluation("first", {"x": None}, lambda *_: True).run()
        again = Evaluation(made[0], {"x": None}, lambda *_: True).run()
        other = Evaluation("second", {"x": None}, lambda *_: True).run()
    finally:
        for one in reversed(made):
            Snapshots.delete(one.snapshot_id)
    assert first[0].start_hash == again[0].start_hash != other[0].start_hash


def test_a_coroutine_gets_an_async_sandbox_and_the_best_fork_is_kept_asleep(prepared: Sandbox) -> None:
    async def task(sandbox: AsyncSandbox, number: int) -> int:
        await sandbox.files.write("/tmp/mine", str(number))
        charge(number)
        return number

    evaluation = Evaluation(prepared, {"low": 1, "high": 3, "middle": 2}, task, keep="best", at_once=2)
    results = asyncio.run(evaluation.run_async())
    best = results.best()
    assert best is not None
    assert (best.strategy, best.cost, [row.kept for row in results]) == ("high", 3, [False, True, False])
    assert best.sandbox_id is not None
    info = Sandbox.get(best.sandbox_id)
    assert (info.state, info.ends_at, info.metadata) == ("suspended", None, {"evals": results.evaluation})
    with Sandbox.connect(best.sandbox_id) as kept:
        assert kept.files.read("/tmp/mine") == "3"
        kept.kill()
    for snapshot in Snapshots.list():
        Snapshots.delete(snapshot.snapshot_id)
    assert only_prepared_is_left()


def test_a_task_that_takes_too_long_and_a_fork_that_dies_break_no_other_run(prepared: Sandbox) -> None:
    def task(sandbox: Sandbox, what: str) -> object:
        if what == "die":
            sandbox.kill()
        return sandbox.run("sleep 100" if what == "long" else "true", timeout_s=None)

    results = Evaluation(prepared, {"long": "long", "die": "die", "good": ""}, task, timeout_s=15).run()
    assert [row.status for row in results] == ["timeout", "error", "passed"]
    assert only_prepared_is_left()


def test_an_evaluation_goes_on_after_kill_9_and_runs_nothing_twice(prepared: Sandbox, tmp_path: Path) -> None:
    journal, ran = tmp_path / "journal", tmp_path / "ran"
    command = [sys.executable, str(PROGRAM), str(journal), str(ran)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as first:
        end = time.monotonic() + BOUND_S
        while not (ran.exists() and "held" in ran.read_text()):
            assert time.monotonic() < end
            assert first.poll() is None
            time.sleep(0.05)
        first.kill()
    before = Results.read(journal)
    assert [row.strategy for row in before] == ["a", "b"]
    with journal.open("ab") as file:
        file.write(b'{"strategy": "c", "rep')  # a line that was cut off
    subprocess.run([*command, "go"], check=True, timeout=BOUND_S, stdout=subprocess.DEVNULL)
    after = Results.read(journal)
    assert [(row.strategy, row.status) for row in after] == [(name, "passed") for name in "abcd"]
    assert list(after)[:2] == list(before)
    assert len({row.start_hash for row in after}) == 1
    assert sorted(ran.read_text().split()) == ["a", "b", "c", "d", "held"]
    assert only_prepared_is_left()


def test_ctrl_c_leaves_no_fork(prepared: Sandbox, tmp_path: Path) -> None:
    journal, ran = tmp_path / "journal", tmp_path / "ran"
    with subprocess.Popen([sys.executable, PROGRAM, journal, ran], stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + BOUND_S
        while not (ran.exists() and "held" in ran.read_text()):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND_S) != 0
    assert [info.name for info in Sandbox.list()] == ["prepared"]
    (snapshot,) = Snapshots.list()  # the journal's
    Snapshots.delete(snapshot.snapshot_id)
