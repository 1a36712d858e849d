"""Egress: what the way out of a sandbox costs, in processor time of relay and edge, against a plain relay.

The clients are in a guest's network namespace, the server is outside, and all of it in one run. Processor time is that
of the process with the relay and of the edge. Other work of the machine only adds to it, so the least of several turns
counts; of wall times it is the median.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from atoll.host import edge_path
from bench.measure import Number
from bench.relays import Stage, plain, resident_mb, ruled

TURNS = 5
ROUNDS = 3
MANY_RULES = 1000
# Fewer than a guest may make at once, see ``relay.CONNECTIONS_AT_ONCE``.
HELLOS = 150
REFILL_S = 0.7
IDLE_S = 2.0
Times = dict[str, float]


def numbers() -> list[Number]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as name:
        directory = Path(name)
        load = directory / "load"
        build(load)
        bare, fast = beside_each_other(directory, load)
        ours = staged(measure_ours, directory, load)
        many = staged(measure_many, directory, load)
    return [
        Number(
            name="fast path, processor time of a GB", measured=fast["flood"], reference_name="a plain relay",
            reference=bare["flood"], most_ratio=1.11,
        ),
        Number(
            name="a connection by a rule of name and port, over a plain relay's",
            measured=fast["hello"] - bare["hello"], promise=0.5, reference_name="a plain relay's",
            reference=bare["hello"],
        ),
        Number(
            name="deep path, a request in HTTP/1.1", measured=ours["requests"], promise=0.25,
            **edge_of(ours, "requests"),
        ),
        Number(
            name="deep path, a request in HTTP/2", measured=ours["requests2"], promise=1 / 3,
            **edge_of(ours, "requests2"),
        ),
        Number(
            name="deep path, a new TLS connection with a request", measured=ours["connections"], promise=1.25,
            **edge_of(ours, "connections"),
        ),
        Number(
            name="deep path, a MB in bodies of 1 MiB", measured=ours["bodies"], promise=1 / 0.3,
            **edge_of(ours, "bodies"),
        ),
        Number(
            name="deep path, what a request takes longer, median", measured=ours["latency"] - bare["latency"],
            promise=1, reference_name="a plain relay's", reference=bare["latency"],
        ),
        Number(
            name="a connection among 1,000 rules, p99", measured=judgement_us("Connection1000Rules"),
            unit="µs", promise=10,
        ),
        Number(
            name="a request among 1,000 rules, p99", measured=judgement_us("Judge1000Rules"),
            unit="µs", promise=10,
        ),
        Number(
            name="deep path, a request in HTTP/1.1 by 1,000 rules", measured=many["requests"], promise=0.25,
            reference_name="by one rule", reference=ours["requests"],
        ),
        Number(name="the edge's program", measured=edge_path().stat().st_size / 1e6, unit="MB", promise=12),
        Number(name="the edge's resident memory, idle", measured=ours["resident"], unit="MB", promise=60),
        Number(name="the relay's resident memory, idle", measured=ours["relay"], unit="MB", promise=12),
    ]  # fmt: skip


def build(load: Path) -> None:
    """Build the program that is server and clients."""
    subprocess.run(
        ["go", "build", "-o", str(load), "."],
        cwd=Path(__file__).parent / "load",
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )


def beside_each_other(directory: Path, load: Path) -> tuple[Times, Times]:
    """What a plain relay and ours take for the same, by turns."""
    rounds = [
        (staged(measure_plain, directory, load), staged(measure_fast, directory, load)) for _ in range(ROUNDS)
    ]
    both = []
    for turns in zip(*rounds, strict=True):
        times = {name: statistics.median(one[name] for one in turns) for name in turns[0]}
        both.append(times | {"flood": min(one["flood"] for one in turns)})
    return both[0], both[1]


def staged(measure: Callable[..., Awaitable[None]], directory: Path, load: Path) -> Times:
    """Measure in a process of its own, which is the host of a network of its own."""
    from tests.integration.network import testbed

    with tempfile.TemporaryDirectory(dir=directory) as place:
        told = testbed.run(measure, {"load": load, "place": Path(place)})
        if told:
            raise RuntimeError(told)
        found: Times = json.loads((Path(place) / "times.json").read_text())
        return found


async def measure_plain(load: Path, place: Path) -> None:
    """What clients get through a plain relay."""
    with plain(load, place) as stage:
        times = await asyncio.to_thread(fast_times, stage)
        times["latency"] = await asyncio.to_thread(latency_ms, stage)
    (place / "times.json").write_text(json.dumps(times))


async def measure_fast(load: Path, place: Path) -> None:
    """What clients get through our relay, where name and port decide."""
    async with ruled(load, place, 1) as (fast, _):
        times = await asyncio.to_thread(fast_times, fast)
    (place / "times.json").write_text(json.dumps(times))


async def measure_ours(load: Path, place: Path) -> None:
    """What clients get through the edge."""
    async with ruled(load, place, 1) as (_, deep):
        await asyncio.sleep(IDLE_S)
        times = {"resident": resident_mb(deep.edge_pid), "relay": resident_mb(deep.relay_pid)}
        times["latency"] = await asyncio.to_thread(latency_ms, deep)
        for kind, lines in (("requests", 8), ("requests2", 16), ("connections", 8), ("bodies", 4)):
            times |= await asyncio.to_thread(cost, deep, kind, lines)
    (place / "times.json").write_text(json.dumps(times))


async def measure_many(load: Path, place: Path) -> None:
    """What a request takes when a thousand rules are about it."""
    async with ruled(load, place, MANY_RULES) as (_, deep):
        times = await asyncio.to_thread(cost, deep, "requests", 8)
    (place / "times.json").write_text(json.dumps(times))


def fast_times(stage: Stage) -> Times:
    """What a plain relay is asked as well: the cost of a GB, and the time to the first byte."""
    hellos = []
    for _ in range(TURNS):
        hellos.append(stage.ask("hello", most=HELLOS).median_ms)
        time.sleep(REFILL_S)
    flood = cost(stage, "flood", 1)["flood"] * 1000
    return {"hello": statistics.median(hellos), "flood": flood}


def latency_ms(stage: Stage) -> float:
    """How long a client waits for the answer to a request."""
    return statistics.median(stage.ask("requests", for_s=1).median_ms for _ in range(TURNS))


def cost(stage: Stage, kind: str, lines: int) -> Times:
    """The least processor time of a piece of work, or of a MB, in all turns, and how much of it is the edge's."""
    turns = [stage.ask(kind, lines=lines, for_s=2) for _ in range(TURNS)]
    counts = {one: one.bytes / 1e6 if kind in ("bodies", "flood") else one.count for one in turns}
    least = min(turns, key=lambda one: one.processor_ms / counts[one])
    return {kind: least.processor_ms / counts[least], f"{kind} edge": least.edge_ms / counts[least]}


def edge_of(times: Times, kind: str) -> dict[str, Any]:
    """How much of a number is the edge's, to stand beside it."""
    return {"reference_name": "of it the edge's", "reference": times[f"{kind} edge"]}


def judgement_us(benchmark: str) -> float:
    """What deciding among a thousand rules takes, the slowest of a hundred."""
    done = subprocess.run(
        ["go", "test", "-run", "^$", "-bench", benchmark, "-count", str(TURNS), "./policy"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        check=True,
        text=True,
    )
    words = done.stdout.split()
    return min(float(before) for before, word in pairwise(words) if word == "p99-ns") / 1000
