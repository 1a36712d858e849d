"""The audit log: what a line costs an act, how many lines it takes, and how long a check of it takes."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from atoll.audit import AuditLog, verify
from atoll.guest import Program
from atoll.host import Home
from atoll.sdk._telling import Teller, program_line
from bench.measure import Number

LINES = 100_000
RATE = 5000
TOLD = 900
CHECKED = 1_000_000
_NOWHERE = Home(Path("/nonexistent"))


def numbers() -> list[Number]:
    """Measure."""
    key = os.urandom(32)
    with tempfile.TemporaryDirectory() as name:
        log = AuditLog(Path(name), lambda _: key, time.time)
        log.open()
        taken = [_noted(log) for _ in range(LINES)]
        began = time.perf_counter()
        log.close()
        written_ms = (sum(taken) + time.perf_counter() - began) / LINES * RATE * 1000
        began = time.perf_counter()
        report = verify(Path(name), key)
        check_s = (time.perf_counter() - began) * CHECKED / LINES
    if not report.whole or report.entries != LINES:
        raise RuntimeError(f"the log is damaged: {report}")
    return [
        Number(
            name="an audit line adds to an act",
            measured=statistics.median(taken) * 1e6,
            promise=30,
            unit="us",
        ),
        Number(
            name="what the audit log is told of adds to an exec",
            measured=statistics.median(_told() for _ in range(TOLD)) * 1e6,
            promise=200,
            unit="us",
        ),
        Number(name="5,000 audit lines, until all are on the disk", measured=written_ms, promise=1000),
        Number(name="a check of 1,000,000 audit lines", measured=check_s, promise=10, unit="s"),
    ]


def _told() -> float:
    began = time.perf_counter()
    program = Program(argv=("git", "commit", "-m", "a message"))
    Teller.of_process().add(_NOWHERE, "d96jevrasmsrost9ugjf", program_line(program))
    return time.perf_counter() - began


def _noted(log: AuditLog) -> float:
    began = time.perf_counter()
    log.note(
        "sandboxes.pause",
        sandbox_id="d96jevrasmsrost9ugjf",
        team="reef",
        caller="python, pid 27514, user root",
        details={"ref": "work"},
    )
    log.settle()
    return time.perf_counter() - began
