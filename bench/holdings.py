"""``python -m bench.holdings``: what a home's sandboxes hold on the host now, as JSON.

A process of its own: an ordinary user may only look at these from within the home's own namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from atoll.host import Home, find_holder, join_holder
from bench.footprint import all_pids, ancestors, command_line, is_machine, pss_kib

ROOT = Path(__file__).parents[1]
_FOUND_S = 20.0


def holdings() -> dict[str, float]:
    """Return what this process's home holds: processes, namespaces, the supervisor's descriptors and more."""
    asked = [sys.executable, "-m", "bench.holdings"]
    done = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def look(home: Home) -> dict[str, float]:
    """Count. The calling process has joined the home's namespaces."""
    lines = {pid: command_line(pid) for pid in all_pids()}
    deadline_s = time.monotonic() + _FOUND_S
    while (supervisor := supervisor_in(lines, home)) is None:
        # the list is not of one moment: a process that changes its program has no command line in between
        if time.monotonic() > deadline_s:
            raise SystemExit(f"bench: no supervisor serves {home.path}")
        time.sleep(0.05)
        lines = {pid: command_line(pid) for pid in all_pids()}
    process = Path(f"/proc/{supervisor}")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": sum(is_machine(line, home) for line in lines.values()),
        "namespaces": sum(line.split(" ", 5)[4].startswith(f"{home.pins}/") for line in mounts),
        "descriptors": count(process / "fd"),
        "threads": count(process / "task"),
        "resident_mb": resident_kib(process) * 1024 / 1e6,
        "proportional_mb": pss_kib(supervisor) * 1024 / 1e6,
    }


def supervisor_in(lines: dict[int, str], home: Home) -> int | None:
    """Return the home's supervisor among processes. One that has forked to start a program is there twice."""
    found = {pid for pid, line in lines.items() if "atoll.supervisor" in line and f" {home.path} " in line}
    return next((pid for pid in found if not ancestors(pid) & found - {pid}), None)


def count(directory: Path) -> int:
    """How many entries a directory has; 0 if only root may look at it, as at an ordinary user's supervisor."""
    try:
        return len(os.listdir(directory))
    except PermissionError:
        return 0


def resident_kib(process: Path) -> int:
    """A process's resident memory."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    the_home = Home.default()
    holder = find_holder(the_home)
    if holder is not None:
        join_holder(holder)
    print(json.dumps(look(the_home)))
