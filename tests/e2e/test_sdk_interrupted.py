"""Clients that are stopped while they make sandboxes: nothing is left, whatever the moment."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.command_line import started

from atoll import AsyncSandbox, Sandbox, Supervisor
from atoll.host import Home

PROGRAM = Path(__file__).parent / "interrupted_client.py"
MOMENTS_S = (0.0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12)
BOUND_S = 60.0


@pytest.fixture(scope="module")
def original(module_home: Path) -> Iterator[Sandbox]:
    """The one sandbox that stays."""
    with Sandbox.create(name="work") as sandbox:
        sandbox.run("echo here > /tmp/state")
        yield sandbox


def assert_nothing_is_left(original: Sandbox) -> None:
    """Fail when others than the original are there once nothing goes on any more."""
    end = time.monotonic() + BOUND_S
    while (left := names()) != ["work"] or operations():
        assert time.monotonic() < end, left
        time.sleep(0.1)
    Supervisor.stop()  # what goes on even now is finished then
    assert names() == ["work"]
    assert original.run("cat /tmp/state").stdout == "here\n"


def names() -> list[str]:
    """All sandboxes of the home."""
    return [info.name or info.sandbox_id for info in Sandbox.list()]


def operations() -> int:
    """How many creates, forks and the like are under way."""
    with contextlib.closing(sqlite3.connect(f"file:{Home.default().database}?mode=ro", uri=True)) as database:
        (count,) = database.execute("SELECT count(*) FROM operations").fetchone()
        return int(count)


def stopped(number: signal.Signals, moment_s: float, *arguments: str) -> None:
    """Run the program and send it a signal so long after it has begun."""
    with subprocess.Popen(
        [sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        time.sleep(moment_s)
        process.send_signal(number)
        process.wait(BOUND_S)


@pytest.mark.parametrize("what", ["create", "fork"])
def test_ctrl_c_leaves_nothing(original: Sandbox, what: str) -> None:
    for moment_s in MOMENTS_S:
        stopped(signal.SIGINT, moment_s, what, "work")
    assert_nothing_is_left(original)


@pytest.mark.parametrize("what", ["unread", "unread-fork"])
def test_a_client_that_is_killed_before_it_has_its_answer_leaves_nothing(
    original: Sandbox, what: str
) -> None:
    for moment_s in (*MOMENTS_S, 2.0):  # the last with its answer in the socket
        stopped(signal.SIGKILL, moment_s, what, "work")
    assert_nothing_is_left(original)


def test_a_call_that_is_cancelled_leaves_nothing_and_its_name_is_free(original: Sandbox) -> None:
    async def create(moment_s: float) -> None:
        sandbox = None
        try:
            async with asyncio.timeout(moment_s):
                sandbox = await AsyncSandbox.create(name="leak")
        except TimeoutError:
            assert sandbox is None
        else:
            await sandbox.kill()

    async def fork(moment_s: float) -> None:
        copies = []
        async with await AsyncSandbox.connect("work") as work:
            try:
                async with asyncio.timeout(moment_s):
                    copies = await work.fork(4)
            except TimeoutError:
                assert copies == []
        for copy in copies:
            await copy.kill()

    async def main() -> None:
        for moment_s in MOMENTS_S:
            await create(moment_s)
            await fork(moment_s)

    asyncio.run(main())
    assert_nothing_is_left(original)


@pytest.mark.parametrize(
    "command", [("run", "--", "true"), ("create", "--name", "leak"), ("fork", "work", "-n", "3")]
)
def test_ctrl_c_at_a_command_leaves_nothing_that_it_has_not_told_of(
    original: Sandbox, command: tuple[str, ...]
) -> None:
    for moment_s in (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5):
        with started(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            time.sleep(moment_s)
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=BOUND_S)
        for sandbox_id in told.decode().split():
            with Sandbox.connect(sandbox_id, wake=False) as sandbox:
                sandbox.kill()
    assert_nothing_is_left(original)
