"""Time to interactive through the E2B SDK: from the call that makes a sandbox to the end of its first command."""

from __future__ import annotations

import asyncio
import statistics
import time

import e2b

from bench.measure import Number
from bench.rooms import supervisor
from bench.served import served

COUNT = 100
COMMAND = "python3 -V"
POOL = 8


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=POOL), served():
        one_by_one = asyncio.run(sequential(COUNT))
        at_once, began_s = asyncio.run(together(COUNT))
    for name, times in (("one by one", one_by_one), (f"{COUNT} at once", at_once)):
        median, p95, p99 = statistics.median(times), percentile(times, 95), percentile(times, 99)
        print(f"time to interactive, {name}: median {median:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms")
    return [
        Number(name="time to interactive, one by one, median", measured=statistics.median(one_by_one)),
        Number(name="time to interactive, one by one, p95", measured=percentile(one_by_one, 95)),
        Number(name="time to interactive, one by one, p99", measured=percentile(one_by_one, 99)),
        Number(name=f"time to interactive, {COUNT} at once, median", measured=statistics.median(at_once)),
        Number(name=f"time to interactive, {COUNT} at once, p95", measured=percentile(at_once, 95)),
        Number(name=f"time to interactive, {COUNT} at once, p99", measured=percentile(at_once, 99)),
        Number(name=f"{COUNT} at once, until the last has answered", measured=began_s * 1000),
    ]


def percentile(times: list[float], rank: int) -> float:
    """The value below which so many percent of them are."""
    return statistics.quantiles(times, n=100, method="inclusive")[rank - 1]


async def sequential(count: int) -> list[float]:
    """Make one after the other; milliseconds of each."""
    times = []
    for _ in range(count):
        took_ms, sandbox = await first_answer()
        times.append(took_ms)
        await sandbox.kill()
    return times


async def together(count: int) -> tuple[list[float], float]:
    """Make all at once; milliseconds of each, and seconds until the last has answered. Fails when one fails."""
    began = time.perf_counter()
    outcomes = await asyncio.gather(*(first_answer() for _ in range(count)))
    took_s = time.perf_counter() - began
    for _, sandbox in outcomes:
        await sandbox.kill()
    return [took_ms for took_ms, _ in outcomes], took_s


async def first_answer() -> tuple[float, e2b.AsyncSandbox]:
    """Make a sandbox and run a command in it."""
    began = time.perf_counter()
    sandbox = await e2b.AsyncSandbox.create(timeout=600, request_timeout=300)
    result = await sandbox.commands.run(COMMAND, timeout=300, request_timeout=300)
    took_ms = (time.perf_counter() - began) * 1000
    if not result.stdout.startswith("Python 3"):
        raise SystemExit(f"bench: {COMMAND} said {result.stdout!r}")
    return took_ms, sandbox
