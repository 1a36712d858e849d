"""Programs: ``exec``, ``run`` and the command line, against a spawn measured inside the sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from atoll import Sandbox
from bench.measure import Number, median_ms
from bench.rooms import refill, supervisor

ROUNDS = 30
CLI_ROUNDS = 10


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=1):
        with Sandbox.create() as sandbox:
            spawn_ms = spawn_inside_ms(sandbox)
            exec_ms = median_ms(lambda: sandbox.exec(["true"]).check(), ROUNDS)
            run_ms = median_ms(lambda: sandbox.run("true").check(), ROUNDS)
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


def spawn_inside_ms(sandbox: Sandbox) -> float:
    """Return the median time that a Go program inside needs to start ``true`` and wait for it."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as directory:
        program = Path(directory) / "spawn"
        subprocess.run(
            ["go", "build", "-o", str(program), "."],
            cwd=Path(__file__).parent / "spawn",
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )
        sandbox.files.write("/tmp/spawn", program.read_bytes())
    sandbox.exec(["chmod", "+x", "/tmp/spawn"]).check()
    return float(sandbox.exec(["/tmp/spawn", str(ROUNDS)]).check().stdout)
