"""What a sandbox feels of a neighbour that does its worst: the p95 of its commands beside it, against alone; and what
it takes to pause and to end such a neighbour.
"""

from __future__ import annotations

import statistics
import time

from atoll import AtollError, Limits, Sandbox
from bench.hogs import HOGS, SHELL_BOMB
from bench.measure import Number
from bench.rooms import supervisor

ROUNDS = 120
P95 = 18
# Until then the program has begun.
AT_WORK_S = 2
# Until a bomb with the default limits has all the processes that it may have.
GROWN_S = 12
LIMITS = Limits(
    vcpus=1, memory_mib=400, processes=200, open_files=1000, disk_mib=64, files=4000, disk_mib_s=50
)


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=0), Sandbox.create() as neighbour:
        return [
            *(beside(name, program, neighbour) for name, program in HOGS.items()),
            *beside_a_bomb_without_limits(neighbour),
        ]


def beside_a_bomb_without_limits(neighbour: Sandbox) -> list[Number]:
    """Measure beside a fork bomb that has the default limits, pause it and end it."""
    alone_ms = p95_ms(neighbour)
    with Sandbox.create() as hostile:
        hostile.processes.start(["bash", "-c", SHELL_BOMB])
        time.sleep(GROWN_S)
        beside_ms = p95_ms(neighbour)
        began_s = time.perf_counter()
        hostile.pause()
        pause_ms = (time.perf_counter() - began_s) * 1000
        hostile.resume()
        began_s = time.perf_counter()
        hostile.kill()
        kill_ms = (time.perf_counter() - began_s) * 1000
    return [
        Number(
            name="p95 of exec beside a fork bomb with the default limits", measured=beside_ms,
            reference_name="alone", reference=alone_ms, most_ratio=2,
        ),
        Number(name="pause of a fork bomb with the default limits", measured=pause_ms, promise=1000),
        Number(name="kill of a fork bomb with the default limits", measured=kill_ms, promise=1000),
    ]  # fmt: skip


def beside(name: str, program: str, neighbour: Sandbox) -> Number:
    """Measure alone, then beside a sandbox that runs the program."""
    alone_ms = p95_ms(neighbour)
    with Sandbox.create(limits=LIMITS) as hostile:
        start(hostile, program)
        time.sleep(AT_WORK_S)
        beside_ms = p95_ms(neighbour)
        Sandbox.list()
    return Number(
        name=f"p95 of exec beside a {name}", measured=beside_ms,
        reference_name="alone", reference=alone_ms, most_ratio=2,
    )  # fmt: skip


def start(hostile: Sandbox, program: str) -> None:
    """Start the program; its limits may strike before the answer comes."""
    try:
        hostile.processes.start(["python3", "-c", program])
    except AtollError as error:
        print(f"bench: {error}")


def p95_ms(sandbox: Sandbox) -> float:
    """Return the 95th percentile of what a command takes, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        sandbox.exec(["true"], timeout_s=300).check()
        times.append((time.perf_counter() - began_s) * 1000)
    return statistics.quantiles(times, n=20)[P95]
