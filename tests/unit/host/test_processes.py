from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.host import (
    RunProgramError,
    kill_process,
    process_alive,
    run_program,
    start_program,
    start_ticks,
)


def test_a_program_gets_its_input_and_gives_both_outputs_and_its_code() -> None:
    argv = ["sh", "-c", "cat; echo problem >&2; exit 3"]
    result = asyncio.run(run_program(argv, stdin=b"x" * 1_000_000))
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"x" * 1_000_000, b"problem\n")


def test_a_child_that_keeps_the_output_open_does_not_delay_the_answer() -> None:
    argv = ["sh", "-c", "sleep 1000 & echo $!"]
    pid = int(asyncio.run(run_program(argv, timeout_s=60)).stdout)
    # The session's group is the program's own, which has ended; the child is ours to end.
    started = start_ticks(pid)
    assert started is not None
    assert kill_process(pid, started)


def test_stderr_can_be_followed_while_a_program_runs() -> None:
    heard: list[bytes] = []
    argv = ["sh", "-c", "echo one >&2; echo two >&2; exit 1"]
    result = asyncio.run(run_program(argv, on_stderr=heard.append))
    assert b"".join(heard) == result.stderr == b"one\ntwo\n"


def test_a_cancelled_program_is_killed_with_its_children(tmp_path: Path) -> None:
    # Opening the fifo waits until the child has opened it, and reading ends with the child's life.
    os.mkfifo(tmp_path / "alive")
    argv = ["sh", "-c", f"sleep 1000 > {tmp_path}/alive & wait"]

    async def run_until_the_child_lives() -> None:
        running = asyncio.ensure_future(run_program(argv, timeout_s=None))
        opening = asyncio.to_thread((tmp_path / "alive").open, "rb")
        await asyncio.sleep(0)
        with await opening as alive:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await asyncio.to_thread(alive.read) == b""

    asyncio.run(run_until_the_child_lives())


def test_a_timeout_says_which_program_and_what_it_said() -> None:
    with pytest.raises(RunProgramError, match=r"sh ran longer than 1 s .*still waiting"):
        asyncio.run(run_program(["sh", "-c", "echo still waiting >&2; sleep 1000"], timeout_s=1))


def test_a_missing_program_is_named() -> None:
    with pytest.raises(RunProgramError, match="no-such-program"):
        asyncio.run(run_program(["no-such-program"]))


def test_a_program_inherits_no_descriptor() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        result = asyncio.run(run_program([sys.executable, "-I", "-c", code]))
        # The fourth is the listing's own.
        assert result.stdout == b"['0', '1', '2', '3']\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_process_is_told_apart_from_a_later_one_of_its_number() -> None:
    own = start_ticks(os.getpid())
    assert own is not None
    assert process_alive(os.getpid(), own)
    assert not process_alive(os.getpid(), own - 1)
    assert kill_process(os.getpid(), own - 1)  # not ours, so nobody is killed


def test_a_process_that_nobody_has_waited_for_yet_does_not_count_as_alive() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        started = start_ticks(process.pid)
        assert started is not None
        assert kill_process(process.pid, started)
        assert not process_alive(process.pid, started)


def test_a_kill_that_is_cancelled_reaps_its_program_all_the_same() -> None:
    async def cancelled() -> tuple[int, bool]:
        program = start_program(["sleep", "1000"])
        killing = asyncio.ensure_future(program.kill())
        await asyncio.sleep(0)
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing
        return program.pid, await asyncio.to_thread(Path(f"/proc/{program.pid}").exists)

    pid, is_there = asyncio.run(cancelled())
    assert pid
    assert not is_there
