"""``python -m bench.shortage``: guests with default limits fill the host's memory, beside a small one.

It needs a quiet machine: it fills the memory down to what stays free, and one that does not protect itself beyond
that. Then the guests that it started are killed when less than 400 MiB were available for 3 s.

It prints how long the small one's commands and ``atoll ls`` took meanwhile, the least memory that was available, and
how each guest ended. The exit code is 1 if one of them took over 5 s, or the net had to be used.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from atoll import Sandbox, Supervisor
from atoll.errors import AtollError
from atoll.host import read_memory

_MIB = 1 << 20
_STEP_MIB = 64
_NET_MIB, _NET_S = 400, 3.0
_SLOW_S = 5.0
_FILL = """
import mmap, sys, time
held = []
for _ in range(int(sys.argv[1]) // 64):
    held.append(mmap.mmap(-1, 64 << 20))
    for page in range(0, 64 << 20, 4096):
        held[-1][page] = 1
print("full", flush=True)
time.sleep(3600)
"""


class Watch:
    """Times what a user does again and again, and looks after the host's memory."""

    def __init__(self) -> None:
        self.took_s: dict[str, list[float]] = {"exec": [], "atoll ls": []}
        self.least_bytes = read_memory().available_bytes
        self.net_used = False
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, work: Callable[[], None]) -> None:
        """Start to do something in a thread."""
        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def end(self) -> None:
        """Stop it all."""
        self.over.set()
        for thread in self._threads:
            thread.join()

    def time(self, name: str, call: Callable[[], object]) -> None:
        """Time a call until the end. A call that fails counts as slow."""
        while not self.over.wait(0.1):
            began_s = time.monotonic()
            try:
                call()
            except (AtollError, subprocess.SubprocessError) as error:
                print(f"{name} failed after {time.monotonic() - began_s:.1f} s: {error}", flush=True)
                self.took_s[name].append(float("inf"))
            self.took_s[name].append(time.monotonic() - began_s)

    def guard(self, pids: Callable[[], list[int]]) -> None:
        """Kill the guests when the host has nearly no memory left."""
        low_since_s = None
        while not self.over.wait(0.05):
            available_bytes = read_memory().available_bytes
            self.least_bytes = min(self.least_bytes, available_bytes)
            if available_bytes >= _NET_MIB * _MIB:
                low_since_s = None
            elif low_since_s is None:
                low_since_s = time.monotonic()
            elif time.monotonic() - low_since_s > _NET_S:
                self.net_used = True
                print("the net is used: the guests are killed", flush=True)
                subprocess.run(["kill", "-9", *map(str, pids())], check=False)
                low_since_s = None


def sentries(home: Path) -> list[int]:
    """The processes of the engine in this home."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if words.startswith(b"runsc-sandbox") and str(home).encode() in words:
            found.append(int(entry.name))
    return found


def main() -> int:
    """Run it once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=int, default=3)
    parser.add_argument("--mib", type=int, default=9_728, help="what each guest fills")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long it is watched")
    options = parser.parse_args()
    home = Path(os.environ.setdefault("ATOLL_HOME", str(Path.home() / ".cache" / "atoll" / "bench-home")))
    cli = shutil.which("atoll", path=str(Path(sys.executable).parent)) or "atoll"
    watch, small = Watch(), Sandbox.create(name="small")
    guests = [Sandbox.create(name=f"fills-{number}") for number in range(options.guests)]

    def listing() -> None:
        subprocess.run([cli, "ls"], check=True, timeout=60, capture_output=True)

    watch.begin(lambda: watch.guard(lambda: sentries(home)))
    watch.begin(lambda: watch.time("exec", lambda: small.exec(["true"], timeout_s=60)))
    watch.begin(lambda: watch.time("atoll ls", listing))
    try:
        for one in guests:
            one.processes.start(["python3", "-c", _FILL, str(options.mib)])
        time.sleep(options.seconds)
    finally:
        watch.end()
        for one in guests:
            info = one.info()
            print(info.name, info.state, info.reason or "", flush=True)
            print(*[line for line in "".join(one.logs()).splitlines() if " was killed" in line], sep="\n")
        for one in (small, *guests):
            one.kill()
        Supervisor.stop()
    print(f"least available: {watch.least_bytes // _MIB:,} MiB")
    for name, took_s in watch.took_s.items():
        ordered = sorted(took_s)
        print(
            f"{name}: {len(ordered)} times, p50 {ordered[len(ordered) // 2]:.2f} s, most {ordered[-1]:.2f} s"
        )
    slow = any(not took_s or max(took_s) > _SLOW_S for took_s in watch.took_s.values())
    return int(slow or watch.net_used)


if __name__ == "__main__":
    sys.exit(main())
