"""Many sandboxes at once on one host: memory of the supervisor, creation in a row, and whether every one answers."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from atoll import Sandbox
from atoll.host import Home
from bench.footprint import all_pids, command_line, pss_kib
from bench.measure import Number
from bench.rooms import supervisor

SUPERVISED = 100
MOST = 300
# 300 take 6 GB; `ATOLL_BENCH_SANDBOXES` measures fewer on a smaller host
WANTED = int(os.environ.get("ATOLL_BENCH_SANDBOXES", MOST))
AT_ONCE = 8
SETTLE_S = 5.0


def numbers() -> list[Number]:
    """Measure."""
    home = Home.default()
    with supervisor(pool_size=0), ExitStack() as open_sandboxes:
        free_mb = available_mb()
        began = time.perf_counter()
        sandboxes = [open_sandboxes.enter_context(Sandbox.create()) for _ in range(min(WANTED, SUPERVISED))]
        every_one_answers(sandboxes)
        time.sleep(SETTLE_S)
        supervisor_mb = supervisor_pss_mb(home)
        while len(sandboxes) < WANTED:
            sandboxes.append(open_sandboxes.enter_context(Sandbox.create()))
        made_s = time.perf_counter() - began - SETTLE_S
        answered_s = every_one_answers(sandboxes)
        each_mb = (free_mb - available_mb()) / len(sandboxes)
    at_once = len(sandboxes)
    return [
        Number(name="supervisor with 100 sandboxes", measured=supervisor_mb, unit="MB", promise=70),
        Number(name=f"{at_once} sandboxes running at once, memory of each", measured=each_mb, unit="MB"),
        Number(name=f"{at_once} sandboxes made in a row, each", measured=made_s * 1000 / at_once),
        Number(name=f"{at_once} sandboxes answer, 8 at once, each", measured=answered_s * 1000 / at_once),
    ]


def every_one_answers(sandboxes: list[Sandbox]) -> float:
    """Run a command in each and return how many seconds all took."""
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(pool.map(lambda sandbox: sandbox.exec(["hostname"]).check().stdout.strip(), sandboxes))
    if said != [sandbox.id for sandbox in sandboxes]:
        raise AssertionError("not every sandbox answered as itself")
    return time.perf_counter() - began


def supervisor_pss_mb(home: Home) -> float:
    """Proportional memory of the home's supervisor."""
    mine = [pid for pid in all_pids() if is_supervisor(command_line(pid), home)]
    return sum(pss_kib(pid) for pid in mine) * 1024 / 1e6


def is_supervisor(line: str, home: Home) -> bool:
    """Whether a process with these arguments is the supervisor of the home."""
    return "atoll.supervisor" in line and f" {home.path} " in line


def available_mb() -> float:
    """Memory that the host has to give."""
    text = Path("/proc/meminfo").read_text()
    line = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024 / 1e6
