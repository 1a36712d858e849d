"""States: pause, resume, suspend, wake, fork and live snapshot, with 64 MiB dirty where that is promised."""

from __future__ import annotations

import statistics
import time

from atoll import Sandbox, Snapshots
from bench.measure import Number, median_ms
from bench.rooms import make_dirty, supervisor

FAST_ROUNDS = 30
SLOW_ROUNDS = 10
READ_S = 1.0
END_S = 0.3
CHANGED_BYTES = 8 << 20


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=1):
        with Sandbox.create() as sandbox:
            sandbox.exec(["true"]).check()
            pause_ms = median_ms(sandbox.pause, FAST_ROUNDS, between=sandbox.resume)
            sandbox.pause()
            resume_ms = median_ms(sandbox.resume, FAST_ROUNDS, between=sandbox.pause)
        with Sandbox.create() as sandbox:
            make_dirty(sandbox)
            fork_ms = one_fork_ms(sandbox)
            suspend_ms = median_ms(sandbox.suspend, SLOW_ROUNDS, between=lambda: awake(sandbox))
            asleep(sandbox)
            wake_ms = median_ms(lambda: sandbox.exec(["true"]), SLOW_ROUNDS, between=lambda: asleep(sandbox))
        with Sandbox.create() as sandbox:
            stopped_ms = live_snapshot_ms(sandbox)
    return [
        Number(name="pause", measured=pause_ms, promise=1),
        Number(name="resume", measured=resume_ms, promise=1),
        Number(name="suspend, 64 MiB dirty", measured=suspend_ms, promise=60),
        Number(name="wake to first result, 64 MiB dirty", measured=wake_ms, promise=120),
        Number(name="one fork, 64 MiB dirty", measured=fork_ms, promise=160),
        Number(name="live snapshot stops the guest for", measured=stopped_ms, promise=60),
    ]


def awake(sandbox: Sandbox) -> None:
    """Wake it, and wait until all of its memory is read: a suspend right after waking has to read it first."""
    sandbox.exec(["true"])
    time.sleep(READ_S)


def asleep(sandbox: Sandbox) -> None:
    """Suspend it, and wait until what it ran on has ended: a waking right after a suspend waits for that first."""
    sandbox.suspend()
    time.sleep(END_S)


def one_fork_ms(sandbox: Sandbox) -> float:
    """Return the median time of ``fork(1)``."""
    copies: list[Sandbox] = []

    def kill_copies() -> None:
        for copy in copies:
            copy.kill()
            copy.close()
        copies.clear()

    return median_ms(lambda: copies.extend(sandbox.fork(1)), SLOW_ROUNDS, between=kill_copies)


def live_snapshot_ms(sandbox: Sandbox) -> float:
    """Return the median of how long the guest stood still while 8 MiB had changed on its disk."""
    stopped = []
    for number in range(SLOW_ROUNDS):
        sandbox.files.write(f"/workspace/changed-{number % 2}", bytes(CHANGED_BYTES // 2))
        info = sandbox.snapshot()
        stopped.append(info.stopped_ms)
    for info in reversed(Snapshots.list(sandbox=sandbox.id)):
        Snapshots.delete(info.snapshot_id)
    return statistics.median(stopped)
