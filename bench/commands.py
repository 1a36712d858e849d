"""Programs: ``exec``, ``run`` and the command line, against a spawn measured inside the sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from atoll import Sandbox
from bench.measure import Number, median_ms
from bench.rooms import refill, supervisor

ROUNDS = 30
CLI_ROUNDS = 10
MANY = 200
AT_ONCE = 8
MANY_ROUNDS = 5
SPAWN = "/tmp/spawn"


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=1):
        with Sandbox.create() as sandbox:
            upload_spawn(sandbox)
            spawn_ms = spawn_inside_ms(sandbox, str(ROUNDS))
            exec_ms = median_ms(lambda: sandbox.exec(["true"]).check(), ROUNDS)
            run_ms = median_ms(lambda: sandbox.run("true").check(), ROUNDS)
            many_spawn_ms = spawn_inside_ms(sandbox, str(MANY), str(AT_ONCE))
            with ThreadPoolExecutor(AT_ONCE) as pool:
                many_ms = median_ms(lambda: execute_many(sandbox, pool), MANY_ROUNDS)
        refill()
        cli_ms = median_ms(run_cli, CLI_ROUNDS, between=refill)
        bare_ms = median_ms(run_bare, CLI_ROUNDS)
    return [
        Number(
            name='exec(["true"])', measured=exec_ms, promise=9,
            reference_name="spawn inside, from Go", reference=spawn_ms, most_ratio=1.7,
        ),
        Number(name='run("true") over exec', measured=run_ms - exec_ms, promise=3),
        Number(
            name="200 execs, 8 at once over one client", measured=many_ms, promise=1000,
            reference_name="200 spawns inside, 8 at once", reference=many_spawn_ms,
        ),
        Number(
            name="atoll run true", measured=cli_ms, promise=250,
            reference_name="bare Python", reference=bare_ms,
        ),
    ]  # fmt: skip


def run_cli() -> None:
    """Run the command as a process."""
    subprocess.run([sys.executable, "-m", "atoll.cli", "run", "true"], check=True, stdin=subprocess.DEVNULL)


def run_bare() -> None:
    """Start and end Python."""
    subprocess.run([sys.executable, "-c", ""], check=True)


def execute_many(sandbox: Sandbox, pool: ThreadPoolExecutor) -> None:
    """Run many programs, some at once, over one client."""
    for result in pool.map(lambda _: sandbox.exec(["true"]), range(MANY)):
        result.check()


def upload_spawn(sandbox: Sandbox) -> None:
    """Build the Go program that spawns, and put it there."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as directory:
        program = Path(directory) / "spawn"
        subprocess.run(
            ["go", "build", "-o", str(program), "."],
            cwd=Path(__file__).parent / "spawn",
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )
        sandbox.files.upload(program, SPAWN)


def spawn_inside_ms(sandbox: Sandbox, *arguments: str) -> float:
    """Return what the Go program inside says that starting ``true`` and waiting for it takes."""
    return float(sandbox.exec([SPAWN, *arguments]).check().stdout)
