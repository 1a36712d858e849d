"""What many suspended sandboxes of one home cost: on the host, on the disk, and when they are listed."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from atoll import Sandbox, Supervisor
from atoll.host import Home
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.row_copies import RowCopies
from atoll.supervisor.state.rows import SandboxRow
from bench.holdings import ROOT, holdings
from bench.measure import Number
from bench.rooms import supervisor

# Real ones, whose cost is measured, and copies of the rows and checkpoints of one, which are listed.
SLEEPERS = int(os.environ.get("ATOLL_BENCH_SLEEPERS", "50"))
MANY = int(os.environ.get("ATOLL_BENCH_CLONES", "5000"))
DESCRIPTORS = 4096
ROUNDS = 5
SETTLED_S = 60.0


def numbers() -> list[Number]:
    """Measure."""
    return [*held(), *listed()]


def held() -> list[Number]:
    """What so many sleeping sandboxes hold, over what one holds."""
    home = Home.default()
    with supervisor(pool_size=0), ExitStack() as sandboxes:
        names = ("processes", "namespaces", "descriptors", "threads", "resident_mb")
        first = sandboxes.enter_context(Sandbox.create())
        asleep(first)
        alone, before_kib = settled(), disk_kib(home)
        for _ in range(SLEEPERS):
            each = sandboxes.enter_context(Sandbox.create())
            each.exec(["true"]).check()
            asleep(each)
        together = settled()
        each_mb = (disk_kib(home) - before_kib) * 1024 / 1e6 / SLEEPERS
    most = {"processes": 0.0, "namespaces": 0.0, "descriptors": 0.0}
    return [
        *(
            Number(
                name=f"{SLEEPERS} suspended sandboxes, {name.removesuffix('_mb')}",
                measured=together[name] - alone[name],
                unit="MB" if name.endswith("_mb") else "",
                promise=most.get(name),
            )
            for name in names
        ),
        Number(name="1,000 suspended idle sandboxes, disk", measured=each_mb, unit="GB", promise=2),
    ]


def asleep(sandbox: Sandbox) -> None:
    """Suspend a sandbox, and leave its connections."""
    sandbox.suspend()
    sandbox.close()


def settled() -> dict[str, float]:
    """What the home holds once the work after the last suspend is done."""
    found, until = holdings(), time.monotonic() + SETTLED_S
    while time.monotonic() < until:
        time.sleep(1)
        before, found = found, holdings()
        if [before[name] for name in ("namespaces", "descriptors")] == [
            found[name] for name in ("namespaces", "descriptors")
        ]:
            break
    return found


def disk_kib(home: Home) -> int:
    """What the sandboxes take on the disk."""
    done = subprocess.run(["du", "-sk", home.sandboxes], stdout=subprocess.PIPE, check=True, text=True)
    return int(done.stdout.split()[0])


def listed() -> list[Number]:
    """Start a supervisor over very many, and list them."""
    home = Home.default()
    with supervisor(pool_size=0), Sandbox.create() as model:
        asleep(model)
        Supervisor.stop()
        clones = asyncio.run(cloned(home, model.id, MANY - 1))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "bench.sleepers"],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
                cwd=ROOT,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
            )
        finally:
            Supervisor.stop()
            asyncio.run(forgotten(home, clones))
    found = json.loads(done.stdout)
    return [
        Number(name=f"list {MANY} suspended sandboxes", measured=found["list_ms"], promise=100),
        Number(
            name=f"supervisor start with {MANY} suspended sandboxes", measured=found["start_ms"], promise=2000
        ),
        Number(
            name=f"supervisor with {MANY} suspended sandboxes, resident",
            measured=found["resident_mb"],
            unit="MB",
            promise=200,
        ),
    ]


async def cloned(home: Home, sandbox_id: str, count: int) -> list[SandboxRow]:
    """Copy the row of a suspended sandbox so often, and give each copy its checkpoint by hard links."""
    paths, database = Paths(home), Database(home.database, RowCopies(home))
    await database.open()
    (model,) = [row for row in await database.all(SandboxRow) if row.sandbox_id == sandbox_id]
    rows = [
        model.but(sandbox_id=new_id(), name=None, created_at=model.created_at + number / 1e3)
        for number in range(1, count + 1)
    ]
    for row in rows:
        # Of the disk only the top: nothing here reads it, and its hundred directories would take long.
        paths.sandbox(row.sandbox_id).mkdir(mode=0o700)
        paths.disk(row.sandbox_id, row.disk).mkdir()
        for entry in paths.disk(sandbox_id, model.disk).iterdir():
            (paths.disk(row.sandbox_id, row.disk) / entry.name).mkdir()
        shutil.copytree(paths.checkpoint(sandbox_id), paths.checkpoint(row.sandbox_id), copy_function=os.link)
    await database.put(*rows, durable=True)
    await database.aclose()
    return rows


async def forgotten(home: Home, rows: list[SandboxRow]) -> None:
    """Undo ``cloned``."""
    database = Database(home.database, RowCopies(home))
    await database.open()
    await database.delete(*rows)
    await database.aclose()
    for row in rows:
        shutil.rmtree(home.sandboxes / row.sandbox_id)


def look() -> dict[str, float]:
    """Start the home's supervisor, and list its sandboxes."""
    began = time.perf_counter()
    assert next(Sandbox.list(limit=1)).state == "suspended"
    start_ms = (time.perf_counter() - began) * 1000
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        assert sum(1 for _ in Sandbox.list()) >= MANY
        times.append((time.perf_counter() - began) * 1000)
    return {"start_ms": start_ms, "list_ms": statistics.median(times), **holdings()}


if __name__ == "__main__":
    print(json.dumps(look()))
