"""What one sandbox does to itself, its neighbours and the supervisor do not feel."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench.hogs import HOGS, SHELL_BOMB

from atoll import AtollError, Limits, Sandbox, Supervisor
from atoll.engines.gvisor.usage import usage_of
from atoll.host import Home, children_by_parent
from tests.crash.victims import engines
from tests.waiting import stop, until

pytestmark = pytest.mark.twice

LIMITS = Limits(memory_mib=400, processes=200, open_files=1000, disk_mib=48, files=2000)
ROUNDS = 12


@pytest.fixture(scope="module")
def neighbour(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create(name="neighbour") as sandbox:
        yield sandbox


def test_a_fork_bomb_with_the_default_limits_is_paused_resumed_and_killed(module_home: Path) -> None:
    with Sandbox.create() as hostile:
        hostile.processes.start(["bash", "-c", SHELL_BOMB])
        until_processes(module_home, 200)
        hostile.pause()
        assert hostile.info().state == "paused"
        # The machines that are kept ready may still be starting.
        until(lambda: used_in(module_home, 0.5) <= 0.05)
        used_s = processor_s(module_home)
        hostile.resume()
        until(lambda: processor_s(module_home) > used_s)
        hostile.pause()
        hostile.kill()
    assert Supervisor.leftovers() == []


def test_a_kill_asks_a_sandboxs_kernel_nothing(module_home: Path) -> None:
    with Sandbox.create() as hostile:
        hostile.processes.start(["sleep", "300"])
        every = set(engines(Home(module_home)))
        try:
            signal_all(every, signal.SIGSTOP)
            hostile.kill()
        finally:
            signal_all(every, signal.SIGCONT)
    assert Supervisor.leftovers() == []


def signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def guest_processes(home: Path) -> list[int]:
    """The processes in which the programs of a home's guests run; they have no command line."""
    children = children_by_parent()
    found, waiting = [], list(engines(Home(home)))
    while waiting:
        found += children.get(waiting[-1], [])
        waiting += children.get(waiting.pop(), [])
    return found


def processor_s(home: Path) -> float:
    """Return the processor time of a home's sentries, and of what runs their guests' programs."""
    return usage_of(engines(Home(home))).cpu_s


def used_in(home: Path, seconds: float) -> float:
    """Return the processor time that is used during this time."""
    used_s = processor_s(home)
    time.sleep(seconds)
    return processor_s(home) - used_s


def until_processes(home: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(guest_processes(home)) < count:
        assert time.monotonic() < deadline, "the bomb does not grow"
        time.sleep(0.1)


def test_a_guest_whose_kernel_answers_nothing_is_given_up_and_boots_again(
    module_home: Path, neighbour: Sandbox
) -> None:
    with Sandbox.create() as deaf:
        deaf.exec(["sh", "-c", "echo kept > kept; sync"])
        row = module_home / "sandboxes" / deaf.id / "row.json"
        until(lambda: row.is_file() and b"machine_id" in row.read_bytes())
        for pid, machine_id in engines(Home(module_home)).items():
            if machine_id.encode() in row.read_bytes():
                stop(pid)
        with ThreadPoolExecutor() as threads:
            ending = threads.submit(deaf.suspend, memory=False)
            assert neighbour.exec(["echo", "here"]).stdout == "here\n"
            assert not ending.done()
            ending.result(timeout=30)
        assert deaf.exec(["cat", "kept"]).stdout == "kept\n"


@pytest.mark.parametrize("hog", HOGS)
def test_neighbours_and_supervisor_answer_beside(hog: str, neighbour: Sandbox) -> None:
    with Sandbox.create(limits=LIMITS) as hostile:
        with contextlib.suppress(AtollError):  # the limit may strike before the answer comes
            hostile.processes.start(["python3", "-c", HOGS[hog]])
        for number in range(ROUNDS):
            assert neighbour.exec(["echo", str(number)], timeout_s=120).stdout == f"{number}\n"
            assert "neighbour" in [info.name for info in Sandbox.list()]
        used = hostile.stats()
        assert used.memory_bytes is None or used.memory_bytes <= 600 << 20
        assert used.disk_bytes <= 64 << 20
        assert used.processes is None or used.processes <= 200 + 64
