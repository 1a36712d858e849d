"""A copy of a running sandbox has the memory of one moment, though the guest writes to all of it meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.e2e import memory_stamper
from tests.e2e.counter import BOUND_S

from atoll import Sandbox, Snapshots

pytestmark = pytest.mark.twice

# A fork freezes the layer of a sandbox that has changed more than 64 MiB, where layers are frozen at all.
FREEZING_BYTES = 70_000_000
GIVER = """
import mmap
blocks = [mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(64)]
while True:
    for block in blocks:
        block.madvise(mmap.MADV_DONTNEED)
        for place in range(0, len(block), 4096):
            block[place] = 1
    open("/tmp/giving", "w").close()
"""
ANSWERS = {"parent": "answer-parent", "child": "of-child/answer-child"}


def test_memory_that_changes_all_the_time_is_of_one_moment_in_snapshots_and_forks(home: Path) -> None:
    with Sandbox.create() as sandbox:
        rounds = started(sandbox)
        for _ in range(2):
            snapshot = sandbox.snapshot()
            copies = [*sandbox.fork(2), Sandbox.create(snapshot)]
            for one in (sandbox, *copies):
                assert_goes_on(one, rounds)
            rounds = asked(sandbox)
            for copy in copies:
                with copy:
                    copy.kill()
            Snapshots.delete(snapshot.snapshot_id)


def test_memory_is_of_one_moment_where_a_big_disk_is_frozen_below_the_running_sandbox(home: Path) -> None:
    with Sandbox.create() as sandbox:
        rounds = started(sandbox)
        for number in range(2):
            sandbox.run(f"head -c {FREEZING_BYTES} /dev/zero >much-{number}").check()
            (copy,) = sandbox.fork(1)
            with copy:
                for one in (copy, sandbox):
                    assert_goes_on(one, rounds)
                copy.kill()
            rounds = asked(sandbox)


def test_a_copy_that_gives_back_memory_it_has_not_read_can_be_copied_at_once(home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.processes.start(["python3", "-c", GIVER])
        wait_for(sandbox, "/tmp/giving")
        for _ in range(2):
            (copy,) = sandbox.fork(1)
            with copy:
                (second,) = copy.fork(1)
                with second:
                    snapshot = second.snapshot()
                    for one in (copy, second, sandbox):
                        # Not by a shell, whose own command line would be counted.
                        assert one.exec(["pgrep", "-c", "-f", "MADV_DONTNEED"]).stdout.strip() == "1"
                    second.kill()
                copy.kill()
            Snapshots.delete(snapshot.snapshot_id)


def wait_for(sandbox: Sandbox, path: str) -> None:
    end = time.monotonic() + BOUND_S
    while not sandbox.files.exists(path):
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.05)


def started(sandbox: Sandbox) -> dict[str, int]:
    """Start the stamper, and ask it for the first time."""
    sandbox.files.write("memory_stamper.py", Path(memory_stamper.__file__).read_text())
    sandbox.processes.start(["python3", "memory_stamper.py"])
    return asked(sandbox)


def assert_goes_on(sandbox: Sandbox, rounds: dict[str, int]) -> None:
    now = asked(sandbox)
    assert all(now[name] > before for name, before in rounds.items())


def asked(sandbox: Sandbox) -> dict[str, int]:
    """How many rounds both processes have stamped; none may have found a page of another round."""
    rounds = {}
    for name, path in ANSWERS.items():
        sandbox.files.write(path.replace("answer", "ask"), "")
        faults, count = answer(sandbox, path).split()
        assert faults == "0", f"{faults} pages of another moment in the {name} of {sandbox.id}"
        rounds[name] = int(count)
    return rounds


def answer(sandbox: Sandbox, path: str) -> str:
    """What a process wrote there, which is taken away."""
    wait_for(sandbox, path)
    text = sandbox.files.read(path)
    sandbox.files.delete(path)
    return text
