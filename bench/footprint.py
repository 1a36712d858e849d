"""Memory of an idle sandbox, and what ``import atoll`` costs."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from atoll import Sandbox
from atoll.host import Home, find_holder, join_holder
from bench.measure import Number, median_ms
from bench.rooms import supervisor

ROUNDS = 20
SETTLE_S = 3.0
SANDBOXES = 4
KCMP_VM = 1
SYS_KCMP = {"x86_64": 312, "aarch64": 272}[platform.machine()]


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=0), ExitStack() as sandboxes:
        for _ in range(SANDBOXES):
            sandboxes.enter_context(Sandbox.create()).exec(["true"]).check()
        time.sleep(SETTLE_S)
        done = subprocess.run(
            [sys.executable, "-m", "bench.footprint"], capture_output=True, check=True, text=True
        )
    idle_mb = float(done.stdout) / SANDBOXES
    bare_ms = median_ms(lambda: start_python("pass"), ROUNDS)
    import_ms = median_ms(lambda: start_python("import atoll"), ROUNDS)
    return [
        Number(name="idle sandbox, proportional memory", measured=idle_mb, unit="MB", promise=35),
        Number(
            name="import atoll over bare Python", measured=import_ms - bare_ms, promise=60,
            reference_name="bare Python", reference=bare_ms,
        ),
    ]  # fmt: skip


def start_python(code: str) -> None:
    """Run a line in a fresh Python."""
    subprocess.run([sys.executable, "-c", code], check=True)


def proportional_mb(home: Home) -> float:
    """Return the proportional memory of all machines of a home, in MB; the supervisor is not one."""
    machines = {pid for pid in all_pids() if is_machine(command_line(pid), home)}
    machines |= {pid for pid in all_pids() if ancestors(pid) & machines}
    return sum(pss_kib(pid) for pid in one_of_each_memory(sorted(machines))) * 1024 / 1e6


def one_of_each_memory(pids: list[int]) -> list[int]:
    """Leave out processes that share all their memory with an earlier one, as gVisor's stubs do."""
    kcmp = ctypes.CDLL(None, use_errno=True).syscall
    kept: list[int] = []
    for pid in pids:
        if all(kcmp(SYS_KCMP, pid, other, KCMP_VM, 0, 0) for other in kept):
            kept.append(pid)
    return kept


def is_machine(line: str, home: Home) -> bool:
    """Whether a process with these arguments is gVisor's, for a sandbox of the home."""
    return line.startswith("runsc-") and f"{home.run}/" in line


def all_pids() -> list[int]:
    """Every process that this one can see."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_line(pid: int) -> str:
    """A process's arguments; empty when it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def ancestors(pid: int) -> set[int]:
    """The parents of a process, up to the first."""
    found = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.add(pid)
    return found


def pss_kib(pid: int) -> int:
    """A process's proportional memory in KiB; 0 when it has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    # Only inside the home's own user namespace may an ordinary user look at these processes.
    the_home = Home.default()
    holder = find_holder(the_home)
    if holder is not None:
        join_holder(holder)
    print(proportional_mb(the_home))
