"""Plays one family: installs it, and checks each program before a sleep, after it, and in a fork."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from atoll import Sandbox
from atoll.errors import AtollError, ExecTimeoutError
from tests.compat.program import Family, Program

TOP = "/workspace/compat"
INSTALL_S, CHECK_S = 900.0, 300.0
TURNS = ("before", "after", "fork")
_TOLD = 400
# The host's own programs before those that its user has put in front of them.
_HOST_PATH = f"/usr/bin:/bin:{os.environ['PATH']}"
# The last line of what is run: how it ended and how long it took, in microseconds.
_TIMED = """cd "$1"; export TURN=$2
began=${EPOCHREALTIME/[.,]/}; bash -eu "$3" >.said 2>&1 </dev/null; code=$?; ended=${EPOCHREALTIME/[.,]/}
tail -c 2000 .said; echo; echo "$code $((ended - began))" """


@dataclasses.dataclass
class Row:
    """What came of one program. An outcome is "right", or what went wrong; a turn that was not reached has none."""

    name: str
    family: str
    install_s: float = 0.0
    outcomes: dict[str, str] = dataclasses.field(default_factory=dict)
    inside_ms: float | None = None
    native_ms: float | None = None

    @property
    def right(self) -> bool:
        """Whether each turn came, and was right."""
        return [self.outcomes.get(turn) for turn in TURNS] == ["right"] * len(TURNS)

    @property
    def ratio(self) -> float | None:
        """How many times as long it takes inside as on the host."""
        if self.inside_ms is None or not self.native_ms:
            return None
        return self.inside_ms / self.native_ms


def play(family: Family, *, timed: bool = True) -> list[Row]:
    """A row for each program, in order. The sandbox is gone afterwards."""
    rows = {program: Row(program.name, family.name) for program in family.programs}
    with Sandbox.create() as sandbox:
        _prepare(sandbox, family)
        for program, row in rows.items():
            _install(sandbox, program, row)
        _check(sandbox, rows, "before")
        for program, row in rows.items():
            if timed and program.host and row.outcomes.get("before") == "right":
                _time(sandbox, program, row)
        sandbox.suspend()
        _check(sandbox, rows, "after")
        (fork,) = sandbox.fork(1)
        with contextlib.closing(fork):
            _check(fork, rows, "fork")
            fork.kill()
    return list(rows.values())


def _prepare(sandbox: Sandbox, family: Family) -> None:
    sandbox.files.write(f"{TOP}/timed.sh", _TIMED)
    if any(program.debian for program in family.programs):
        sandbox.run("apt-get update -qq", user="root", timeout_s=INSTALL_S).check()
    if family.prepare:
        sandbox.run(family.prepare, user="root", timeout_s=INSTALL_S).check()


def _install(sandbox: Sandbox, program: Program, row: Row) -> None:
    """Install it and start what it leaves running; a row that failed here has an outcome, and is not checked."""
    place = f"{TOP}/{program.name}"
    sandbox.files.write(f"{place}/check.sh", program.check)
    sandbox.files.write(f"{place}/start.sh", program.start)
    began_s = time.monotonic()
    for line, user in (
        (program.debian and f"apt-get install -y -qq --no-install-recommends {program.debian}", "root"),
        (program.pip and f"pip install -q {program.pip}", None),
        (program.npm and f"npm install --silent --no-audit --no-fund {program.npm}", None),
    ):
        if line:
            done = sandbox.run(
                line, user=user, cwd=place, env={"DEBIAN_FRONTEND": "noninteractive"}, timeout_s=INSTALL_S
            )
            if done.exit_code:
                row.outcomes["before"] = f"not installed: {(done.stderr + done.stdout)[-2 * _TOLD :]}"
                return
    row.install_s = time.monotonic() - began_s
    if program.start:
        outcome, _ = _inside(sandbox, program, "start.sh", 0)
        if outcome != "right":
            row.outcomes["before"] = f"not started: {outcome}"


def _check(sandbox: Sandbox, rows: dict[Program, Row], turn: str) -> None:
    """Check what has gone well so far."""
    number = TURNS.index(turn)
    for program, row in rows.items():
        if turn not in row.outcomes and all(row.outcomes.get(past) == "right" for past in TURNS[:number]):
            row.outcomes[turn], _ = _inside(sandbox, program, "check.sh", number + 1)


def _time(sandbox: Sandbox, program: Program, row: Row) -> None:
    """Time a check that has run once, here and on a host that has all it needs, where it runs once before as well."""
    if all(shutil.which(name, path=_HOST_PATH) for name in program.host.split()):
        native, native_ms = _natively(program)
        inside, inside_ms = _inside(sandbox, program, "check.sh", 1)
        if native == inside == "right":
            row.native_ms, row.inside_ms = native_ms, inside_ms


def _inside(sandbox: Sandbox, program: Program, script: str, turn: int) -> tuple[str, float]:
    argv = ["bash", f"{TOP}/timed.sh", f"{TOP}/{program.name}", str(turn), script]
    try:
        return _read(sandbox.exec(argv, timeout_s=CHECK_S).stdout)
    except (AtollError, ExecTimeoutError) as error:
        return f"{type(error).__name__}: {error}", 0.0


def _natively(program: Program) -> tuple[str, float]:
    """Run the check twice in one place, since the one inside has run before as well."""
    with tempfile.TemporaryDirectory(prefix="compat-") as place:
        (Path(place) / "check.sh").write_text(program.check)
        argv = ["bash", "-c", _TIMED, "timed.sh", place, "1", "check.sh"]
        env = {**os.environ, "HOME": place, "PATH": _HOST_PATH}
        for _ in range(2):
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=CHECK_S)
        return _read(done.stdout)


def _read(told: str) -> tuple[str, float]:
    """The outcome and the milliseconds that the last line tells."""
    said, _, last = told.rstrip("\n").rpartition("\n")
    code, took_us = last.split()
    if code == "0":
        return "right", int(took_us) / 1000
    return f"exit code {code}: {said.strip()[-_TOLD:]}", int(took_us) / 1000
