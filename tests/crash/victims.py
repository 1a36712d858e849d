"""Who is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from atoll.host import Home, find_holder, kill_process, start_ticks, wait_pidfd

_NOTICED_S = 5.0
VICTIMS = ("supervisor", "engine", "agent", "client", "nobody")


def supervisors(home: Home) -> list[int]:
    """The supervisors of a home; not what one is just starting, which bears its name until it runs its own program."""
    found = [pid for pid, line in _processes() if "atoll.supervisor" in line and f"{home.path}" in line]
    return [pid for pid in found if _parent(pid) not in (None, *found)]


def engines(home: Home) -> dict[int, str]:
    """The engine's processes of a home, sentries, gofers and those that start them, and of which machine each is."""
    found = {}
    for pid, line in _processes():
        _, there, rest = line.partition(f"{home.run}/m/")
        if there and "atoll.supervisor" not in line:
            found[pid] = rest[:20]
    return found


def kill_supervisor(home: Home) -> None:
    """End the supervisor as a crash would."""
    for pid in supervisors(home):
        ticks = start_ticks(pid)
        if ticks is not None:
            kill_process(pid, ticks)


def wait_for_end(pids: list[int], is_dying: bool) -> None:
    """Wait until supervisors have ended that are dying: until then they take connections, which then break."""
    for pid in pids if is_dying else ():
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            # A process may be a zombie while threads of it still hold its sockets; this waits for the last one.
            assert wait_pidfd(fd, _NOTICED_S), "a supervisor that was killed does not end"
        finally:
            os.close(fd)


def kill_engine(home: Home, dice: random.Random) -> bool:
    """End any one of the engine's processes; whether its machine has ended then."""
    found = engines(home)
    if not found:
        return True
    pid = dice.choice(sorted(found))
    machine_id = found[pid]
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return _has_ended(home, machine_id)


def kill_agent(home: Home, dice: random.Random) -> bool:
    """End process 1 of any one guest, the way the engine does it; whether its machine has ended then."""
    holder = find_holder(home)
    # What lies there is seen in the holder's mount namespace only.
    inside = Path(f"/proc/{holder.pid}/root{home.run}") if holder else home.run
    roots = sorted(inside.glob("m/*/runsc"))
    runsc = next(iter(sorted(home.bin.glob("*/runsc"))), None)
    if roots and runsc:
        root = dice.choice(roots)
        argv = [str(runsc), f"--root={root}", "kill", root.parent.name, "KILL"]
        subprocess.run(argv, capture_output=True, check=False, timeout=60)
        return _has_ended(home, root.parent.name)
    return True


def _has_ended(home: Home, machine_id: str) -> bool:
    """Wait until a machine has ended; a frozen one whose agent was killed does so when it is thawed."""
    deadline = time.monotonic() + _NOTICED_S
    while machine_id in engines(home).values():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _processes() -> list[tuple[int, str]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(entry.name), line))
    return found
