"""Disks with much on them: what the guest does goes on, whichever way its layer is kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from tests.e2e.counter import count, start_counter

from atoll import Sandbox, Snapshots, Supervisor

pytestmark = pytest.mark.twice

# More than a fork copies while the guest runs, where it can freeze instead.
MUCH = "head -c 80M /dev/zero | tr '\\0' x >/workspace/much; echo before >/workspace/file"
# Has a line of a file in its hands that has no name any more, and one more that it still writes to.
READER = """
exec 3</workspace/gone 4>>/workspace/log; rm /workspace/gone; echo ready
read line; cat <&3; echo $line >&4; cat /workspace/log
"""
# More than the layers that a disk may stand on; `make soak` makes it 200.
ROUNDS = int(os.environ.get("ATOLL_TEST_CHAIN", "40"))
KILLED_AT = 20
LONGEST = 16
STEP = """
cd /workspace; mv tree* tree{0} 2>/dev/null || true; echo {0} >>tree{0}/log; rm -f kept*; echo {0} >kept{0}
"""


def test_everything_goes_on_while_a_copy_of_a_full_disk_is_made(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run(MUCH).check()
        sandbox.run("echo deleted >/workspace/gone").check()
        start_counter(sandbox)
        with sandbox.processes.start(READER, stdin=True, stream=True) as reader:
            outputs = iter(reader)
            assert next(outputs).text == "ready\n"
            (copy,) = sandbox.fork(1)
            with copy:
                sandbox.run("echo after >/workspace/file").check()
                assert copy.files.read("/workspace/file") == "before\n"
                assert copy.run("tail -c 1 /workspace/much").stdout == "x"
                assert (count(copy), count(sandbox)) == (2, 2)
            reader.write_stdin("hello\n")
            assert "".join(output.text for output in outputs) == "deleted\nhello\n"
        # What the first fork left is little, so this one copies.
        with sandbox.fork(1)[0] as copy:
            assert copy.files.read("/workspace/file") == "after\n"


def test_a_snapshot_of_a_disk_that_was_frozen_in_between_whole(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run(MUCH).check()
        with sandbox.fork(1)[0]:
            sandbox.run("mv /workspace/much /workspace/moved; echo later >/workspace/file").check()
            snapshot = sandbox.snapshot()
        sandbox.run("rm /workspace/*").check()
        sandbox.rollback(snapshot.snapshot_id)
        assert sandbox.run("cat /workspace/file; wc -c </workspace/moved").stdout == "later\n83886080\n"
        assert not sandbox.files.exists("/workspace/much")
    Snapshots.delete(snapshot.snapshot_id)


def test_a_long_chain_of_snapshots_stays_whole_and_mountable(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run("mkdir -p /workspace/tree && echo tool >/workspace/tree/tool").check()
        start_counter(sandbox)
        snapshots = []
        for number in range(ROUNDS):
            sandbox.run(STEP.format(number)).check()
            count(sandbox)
            if number % 4 == 3:
                sandbox.suspend()
            snapshots.append(sandbox.snapshot())
            if number % 4 == 1:
                sandbox.rollback(snapshots[-1].snapshot_id)
            if number == KILLED_AT:
                hello = Supervisor.hello()
                assert hello is not None
                os.kill(hello.pid, signal.SIGKILL)
        wait_until_short(module_home)
        for number in (0, 1, 2, 9, 16, 17, KILLED_AT, ROUNDS - 2, ROUNDS - 1):
            sandbox.rollback(snapshots[number].snapshot_id)
            assert sandbox.run(f"cat /workspace/tree{number}/log").stdout.split() == [
                str(step) for step in range(number + 1)
            ]
            assert sandbox.run(f"ls /workspace; cat /workspace/tree{number}/tool").stdout == (
                f"kept{number}\ntree{number}\ntool\n"
            )
            assert count(sandbox) == number + 3
    for snapshot in reversed(snapshots):
        Snapshots.delete(snapshot.snapshot_id)


def wait_until_short(home: Path) -> None:
    """Return when no snapshot of the home stands on more layers than a disk should."""
    until_s = time.monotonic() + 120
    while (longest := max(stack_lengths(home))) > LONGEST:
        assert time.monotonic() < until_s, f"a snapshot stands on {longest} layers"
        time.sleep(0.1)


def stack_lengths(home: Path) -> list[int]:
    """How many layers each snapshot stands on."""
    with contextlib.closing(sqlite3.connect(f"file:{home / 'state.db'}?mode=ro", uri=True)) as database:
        return [len(json.loads(stack)) for (stack,) in database.execute("SELECT stack FROM snapshots")]


def test_tmp_and_shared_memory_have_room_for_a_browser(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        # A browser looks first, and 64 MiB of shared memory are where it crashes.
        script = "import os; print(*(s.f_bavail * s.f_frsize >> 20 for s in map(os.statvfs, ('/tmp', '/dev/shm'))))"
        free_mib = [int(word) for word in sandbox.exec(["python3", "-c", script]).check().stdout.split()]
        assert min(free_mib) >= 1024
        for place in ("/tmp", "/dev/shm"):
            sandbox.run(f"head -c 200M /dev/zero >{place}/shared").check()
        with sandbox.fork(1)[0] as copy:
            assert copy.run("cat /tmp/shared /dev/shm/shared | wc -c").stdout == f"{400 << 20}\n"
