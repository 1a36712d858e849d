"""Generations: what sleep and snapshots cost where 1 GiB of memory is in use and little of it changes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from atoll import Limits, Sandbox, Snapshots
from atoll.host import Home
from bench.measure import Number
from bench.rooms import supervisor

ROUNDS = 5
END_S = 1.0
MB = 1_000_000
# It holds 1 GiB of random bytes, and renews or reads the first MiB of it when a file asks for that.
PROGRAM = """
import mmap, os, time
memory = mmap.mmap(-1, 1 << 30)
for at in range(0, len(memory), 1 << 20):
    memory[at : at + (1 << 20)] = os.urandom(1 << 20)
open("ready", "w").close()
while True:
    time.sleep(0.005)
    for what in ("renew", "read"):
        if os.path.exists(what):
            size = int(open(what).read()) << 20
            if what == "renew":
                for at in range(0, size, 1 << 16):
                    memory[at : at + (1 << 16)] = os.urandom(1 << 16)
            else:
                sum(memory[:size:4096])
            os.remove(what)
"""


def numbers() -> list[Number]:
    """Measure."""
    home = Home.default()
    with supervisor(pool_size=0), Sandbox.create(limits=Limits(memory_mib=2048)) as sandbox:
        sandbox.processes.start(["python3", "-c", PROGRAM])
        while not sandbox.files.exists("ready"):
            time.sleep(0.1)
        sandbox.suspend()
        checkpoint = home.sandboxes / sandbox.id / "checkpoint"
        suspends, suspended, wakes = [], [], []
        for _ in range(ROUNDS):
            time.sleep(END_S)
            began = time.perf_counter()
            asked(sandbox, "read", 64)
            wakes.append(time.perf_counter() - began)
            asked(sandbox, "renew", 10)
            began = time.perf_counter()
            sandbox.suspend()
            suspends.append(time.perf_counter() - began)
            suspended.append(own_bytes(checkpoint))
        asked(sandbox, "read", 0)
        made = [sandbox.snapshot()]
        for _ in range(ROUNDS):
            asked(sandbox, "renew", 19)
            made.append(sandbox.snapshot())
        snapshots = [own_bytes(home.snapshots / one.snapshot_id / "checkpoint") for one in made[1:]]
    for info in reversed(made):
        Snapshots.delete(info.snapshot_id)
    stopped_ms = statistics.median(one.stopped_ms for one in made[1:])
    return [
        Number(name="wake with 1 GiB, until 64 MiB are read", measured=in_ms(wakes), promise=150),
        Number(name="suspend again, 10 MB of 1 GiB changed", measured=in_ms(suspends), promise=100),
        Number(name="it writes", measured=statistics.median(suspended) / MB, promise=25, unit="MB"),
        Number(name="live snapshot, 20 MB of 1 GiB changed, stops", measured=stopped_ms, promise=60),
        Number(name="it writes", measured=statistics.median(snapshots) / MB, promise=25, unit="MB"),
    ]


def asked(sandbox: Sandbox, what: str, mib: int) -> None:
    """Have the program do it, and wait until it has."""
    sandbox.run(f"echo {mib} >new && mv new {what} && while [ -e {what} ]; do sleep 0.005; done").check()


def own_bytes(checkpoint: Path) -> int:
    """What a checkpoint has written itself."""
    return (checkpoint / "pages.img").stat().st_size


def in_ms(seconds: list[float]) -> float:
    """The median, in milliseconds."""
    return statistics.median(seconds) * 1000
