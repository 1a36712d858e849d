"""Sandboxes with many processes sleep, wake and are copied, and every process goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.counter import BOUND_S

from atoll import Sandbox, Snapshots

COUNT = 60
# Each waits in another way for what makes it count on: a timer, a pipe, a poll with a mask of signals, a lock, a child.
PROGRAM = f"""
import fcntl, os, select, signal, socket, sys, time
os.makedirs("/tmp/counts", exist_ok=True)

def by_timer(number, ends):
    time.sleep(1.5)

def by_pipe(number, ends):
    os.read(ends[0], 1)
    os.write(ends[1], b"x")
    time.sleep(1.5)

def by_poll(number, ends):
    poll = select.poll()
    poll.register(ends[2], select.POLLIN)
    poll.poll(1500)

def by_signal(number, ends):
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    signal.sigwait([signal.SIGALRM])

def by_lock(number, ends):
    with open(f"/tmp/lock-{{number // 10}}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.7)
    time.sleep(0.8)

def by_child(number, ends):
    child = os.fork()
    if child == 0:
        time.sleep(1.5)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

ways = [by_timer, by_pipe, by_poll, by_signal, by_lock]
ends = [*os.pipe(), *socket.socketpair()]
os.write(ends[1], b"x" * 10)
for number in range({COUNT}):
    if os.fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        wait = by_child if number % 20 == 0 else ways[number % len(ways)]
        count = 0
        while True:
            wait(number, ends)
            count += 1
            with open(f"/tmp/counts/{{number}}.new", "w") as file:
                file.write(f"{{os.getpid()}} {{count}}")
            os.replace(f"/tmp/counts/{{number}}.new", f"/tmp/counts/{{number}}")
while True:
    signal.pause()
"""
SHOW = """
import os
os.makedirs("/tmp/counts", exist_ok=True)
os.chdir("/tmp/counts")
for name in os.listdir():
    if name.isdigit():
        print(name, open(name).read())
"""


def test_every_process_goes_on_where_it_was(home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.processes.start(["python3", "-c", PROGRAM])
        before = go_on(sandbox, {})
        for _ in range(2):
            sandbox.processes.list()
            sandbox.suspend()
            before = go_on(sandbox, before)
        snapshot = sandbox.snapshot()
        make: Callable[[], Sandbox]
        for make in (lambda: sandbox.fork(1)[0], lambda: Sandbox.create(snapshot)):
            with make() as copy:
                after = go_on(copy, before)
                copy.suspend()
                go_on(copy, after)
                copy.kill()
        before = go_on(sandbox, before)
        sandbox.pause()
        go_on(sandbox, before)
        Snapshots.delete(snapshot.snapshot_id)


def test_processes_that_wait_are_ended_read_and_reached_by_signals_after_a_wake(home: Path) -> None:
    with Sandbox.create() as sandbox:
        trapped = sandbox.processes.start(
            ["bash", "-c", "trap 'echo caught; exit 3' TERM; echo on; while :; do sleep 1000; done"]
        )
        asleep = sandbox.processes.start(["sleep", "1000000"])
        timed = sandbox.processes.start(["bash", "-c", "sleep 3; echo over"])
        reader = sandbox.processes.start(["cat"], stdin=True)
        sandbox.suspend()
        asleep.kill()
        assert asleep.wait().exit_code != 0
        assert timed.wait().stdout == "over\n"
        reader.write_stdin("read\n")
        reader.close_stdin()
        assert reader.wait().stdout == "read\n"
        sandbox.run(f"kill -TERM {trapped.pid}; pkill -P {trapped.pid} sleep").check()
        result = trapped.wait()
        assert (result.exit_code, result.stdout) == (3, "on\ncaught\n")


def go_on(sandbox: Sandbox, before: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Wait until each process has counted on from what it had, and return what each has: its pid and its count."""
    end = time.monotonic() + BOUND_S
    while True:
        now = counts(sandbox)
        assert all(
            now[number][0] == pid and now[number][1] >= count for number, (pid, count) in before.items()
        )
        if len(now) == COUNT and all(now[number][1] > count for number, (_, count) in before.items()):
            return now
        time.sleep(0.5)
        assert time.monotonic() < end, f"{len(now)} of {COUNT} go on: {now} after {before}"


def counts(sandbox: Sandbox) -> dict[int, tuple[int, int]]:
    """Each process's pid and count, by its number."""
    rows = [
        tuple(map(int, line.split()))
        for line in sandbox.exec(["python3", "-c", SHOW]).check().stdout.splitlines()
    ]
    return {number: (pid, count) for number, pid, count in rows}
