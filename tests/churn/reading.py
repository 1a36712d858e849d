"""What a home and its supervisor hold: a number for each thing that could grow.

``python -m tests.churn.reading`` prints it as JSON: a process of its own, since an ordinary user may only look at much
of this from within the home's own namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from bench.footprint import all_pids, command_line
from bench.holdings import ROOT, count, supervisor_in

from atoll.host import Home, find_holder, join_holder
from atoll.testing import group_roots

# What differs with what has happened lately, and has bounds of its own.
_LOOSE = ("state.db", "supervisor.log", "database.log")
_KIB = 1024
_FOUND_S = 20.0
Reading = dict[str, float]


def read() -> Reading:
    """Read what this process's home holds now."""
    asked = [sys.executable, "-m", "tests.churn.reading"]
    done = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
    found: Reading = json.loads(done.stdout)
    return found


def look(home: Home) -> Reading:
    """Count. The calling process has joined the home's namespaces."""
    lines = _processes()
    deadline = time.monotonic() + _FOUND_S
    while (supervisor := supervisor_in(lines, home)) is None:
        assert time.monotonic() < deadline, f"no supervisor serves {home.path}"
        time.sleep(0.05)
        lines = _processes()
    process = Path(f"/proc/{supervisor}")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    own = {pid for pid, line in lines.items() if f"{home.path}" in line or f"{home.run}" in line}
    return {
        "pid": supervisor,
        "memory": _anonymous_kib(process) * _KIB,
        "descriptors": count(process / "fd"),
        "threads": count(process / "task"),
        "processes": len(own - {os.getpid()}),
        "namespaces": sum(line.split(" ", 5)[4].startswith(f"{home.pins}/") for line in mounts),
        "mounts": len(mounts),
        "control groups": sum(1 for root in group_roots(home) for _ in os.walk(root)),
        **_files(home),
        **_rows(home),
    }


def _processes() -> dict[int, str]:
    return {pid: command_line(pid) for pid in all_pids()}


def _anonymous_kib(process: Path) -> int:
    """A process's own memory, without what it has mapped from files."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _files(home: Home) -> Reading:
    """The files and bytes of each directory of the home. What others share, like its images, is a link."""
    found: Reading = {"bytes of the database and the log": 0}
    for entry in [*home.path.iterdir(), home.run]:
        if entry.name.startswith(_LOOSE):
            found["bytes of the database and the log"] += _allocated(entry)
        elif entry.is_dir() and not entry.is_symlink():
            files = [
                Path(path) / name for path, names, others in os.walk(entry) for name in (*names, *others)
            ]
            name = "run" if entry == home.run else entry.name
            found[f"files in {name}"] = len(files)
            found[f"bytes in {name}"] = sum(map(_allocated, files))
    return found


def _allocated(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.lstat().st_blocks * 512
    return 0


def _rows(home: Home) -> Reading:
    with contextlib.closing(sqlite3.connect(home.database)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            f"rows of {table}": database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in tables
        }


def main() -> None:
    """Print a reading of the home that the environment names."""
    home = Home.default()
    holder = find_holder(home)
    if holder is not None:
        join_holder(holder)
    sys.stdout.write(json.dumps(look(home)))


if __name__ == "__main__":
    main()
