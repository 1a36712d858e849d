"""Disks with 1, 5 and 10 GB written to them and 1 GB of memory in use, against the same without: root freezes layers.

As an ordinary user layers are copied, which is not what is promised; then only the smallest is measured.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from atoll import Sandbox, Snapshots
from bench.measure import Number
from bench.rooms import supervisor

SIZES_GB = (1, 5, 10)
ROUNDS = 6
FORKS = 10
HOLD = (
    "import os, time; blocks = [os.urandom(64 << 20) for _ in range(16)]; open('/tmp/dirty', 'w').close(); "
    "time.sleep(1e6)"
)
WRITE = (
    "import os, sys; block = os.urandom(64 << 20); file = open('/workspace/much-' + sys.argv[1], 'wb'); "
    "[file.write(block) for _ in range(int(sys.argv[2]))]; file.close()"
)
BLOCKS_A_GB = 15


def numbers() -> list[Number]:
    """Measure."""
    found: list[Number] = []
    with supervisor(pool_size=0), Sandbox.create() as sandbox:
        sandbox.processes.start(["python3", "-c", HOLD])
        while not sandbox.files.exists("/tmp/dirty"):
            time.sleep(0.1)
        without = times_ms(sandbox)
        written = 0
        for size in SIZES_GB if os.geteuid() == 0 else SIZES_GB[:1]:
            blocks = (size - written) * BLOCKS_A_GB
            sandbox.exec(["python3", "-c", WRITE, str(size), str(blocks)], timeout_s=1800).check()
            written = size
            stopped_ms, added_mb = first_copies(sandbox)
            for name, measured in times_ms(sandbox).items():
                found.append(
                    Number(
                        name=f"{name}, {size} GB written", measured=measured, reference=without[name],
                        reference_name="without", most_ratio=1.3 if os.geteuid() == 0 else None,
                    )
                )  # fmt: skip
            found.append(
                Number(
                    name=f"disk for {FORKS} forks, {size} GB written",
                    measured=added_mb,
                    unit="MB",
                    promise=100,
                )
            )
            found.append(
                Number(
                    name=f"live snapshot stops the guest for, {size} GB written",
                    measured=stopped_ms,
                    promise=150,
                )
            )
        sandbox.kill()
        forget()
    return found


def times_ms(sandbox: Sandbox) -> dict[str, float]:
    """Medians of fork, rollback and wake."""
    snapshot = sandbox.snapshot()
    copies: list[Sandbox] = []

    def drop() -> None:
        while copies:
            with copies.pop() as copy:
                copy.kill()

    rolling = median(lambda: sandbox.rollback(snapshot.snapshot_id), lambda: None)
    forking = median(lambda: copies.extend(sandbox.fork(1)), drop)
    sandbox.suspend()
    waking = median(lambda: sandbox.exec(["true"]).check(), sandbox.suspend)
    return {"fork": forking, "rollback": rolling, "wake": waking}


def median(action: Callable[[], object], after: Callable[[], object]) -> float:
    """Return the median time in milliseconds, without what is done after each round."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
        after()
    return statistics.median(times) * 1000


def first_copies(sandbox: Sandbox) -> tuple[float, float]:
    """Right after the writing: how long a live snapshot stops the guest, and what ten forks add to the disk."""
    info = sandbox.snapshot()
    before = used_mb()
    copies = sandbox.fork(FORKS)
    for copy in copies:
        copy.exec(["true"]).check()
    added = used_mb() - before
    for copy in copies:
        with copy:
            copy.kill()
    return info.stopped_ms, added


def used_mb() -> float:
    """What the file system of the home has in use, all of it written out."""
    os.sync()
    found = os.statvfs(os.environ["ATOLL_HOME"])
    return (found.f_blocks - found.f_bfree) * found.f_frsize / 1e6


def forget() -> None:
    """Delete the snapshots that measuring left."""
    for info in sorted(Snapshots.list(), key=lambda one: one.created_at, reverse=True):
        Snapshots.delete(info.snapshot_id)
