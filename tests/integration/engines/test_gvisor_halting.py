"""Stopping the processes of a machine by signals, where the host has no control groups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atoll.engines.gvisor.halting import halt, stop_tree
from atoll.engines.gvisor.record import MachineRecord
from atoll.errors import EngineError
from atoll.host import children_by_parent, continue_process, start_ticks
from tests.waiting import until

pytestmark = pytest.mark.twice

# Each process makes more of its kind as long as it runs.
GROWS = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        time.sleep(0.01)
        os.fork()
        while True:
            time.sleep(0.001)
    time.sleep(0.002)
while True:
    time.sleep(0.001)
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def below(pid: int) -> set[int]:
    children, found, waiting = children_by_parent(), set(), [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found |= set(new)
        waiting += new
    return found


def test_a_tree_that_grows_is_stopped_whole_and_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", GROWS], start_new_session=True) as process:
        try:
            until(lambda: len(below(process.pid)) > 5)
            ticks = start_ticks(process.pid)
            assert ticks is not None
            stopped = stop_tree(process.pid, ticks)
            members = {process.pid, *below(process.pid)}
            assert {pid for pid, _ in stopped} == members
            until(lambda: all(state(pid) == "T" for pid in members))
            time.sleep(0.1)
            assert {process.pid, *below(process.pid)} == members
            for pid, started_ticks in stopped:
                assert continue_process(pid, started_ticks)
            until(lambda: all(state(pid) != "T" for pid in members))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_process_with_the_pid_of_one_that_ended_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            ticks = start_ticks(process.pid)
            assert ticks is not None
            record = MachineRecord(
                machine_id="m",
                state_dir="/",
                sentry_pid=process.pid,
                sentry_started=ticks - 1,
                gofer_pid=process.pid,
                gofer_started=ticks - 1,
            )
            with pytest.raises(EngineError, match="does not run any more"):
                halt(record, None)
            assert state(process.pid) != "T"
        finally:
            process.kill()
