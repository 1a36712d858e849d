"""What suspend and waking cost for each process: 10, 100 and 1,000 that run ``sleep``, beside raw ``runsc``.

The reference is ``runsc checkpoint``, and ``runsc restore`` with ``runsc exec true``, of the same build: of a container
with the same processes, with nothing of atoll around it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atoll import Sandbox
from atoll.host import Home, Mounts, find_holder, join_holder, mounts_below, runsc_path
from atoll.images import Images
from bench.measure import Number
from bench.raw import FLAGS, bundle_spec
from bench.rooms import supervisor

COUNTS = (10, 100, 1000)
ROUNDS = 3
SETTLED_S = 2.0
BOUND_S = 300.0
SLEEPERS = "for ((i = 0; i < {count}; i++)); do sleep 1000000 & done; touch /tmp/ready; wait"


def numbers() -> list[Number]:
    """Measure."""
    found: dict[int, tuple[float, float]] = {}
    raw: dict[int, tuple[float, float]] = {}
    with supervisor(pool_size=1):
        for count in COUNTS:
            found[count] = suspend_and_wake_ms(count)
            raw[count] = raw_ms(count)
    made = []
    for index, what in enumerate(("suspend", "wake to first result")):
        for count in COUNTS:
            made.append(
                Number(
                    name=f"{what}, {count:,} sleeping processes",
                    measured=found[count][index],
                    reference_name=("raw checkpoint", "raw restore")[index],
                    reference=raw[count][index],
                )
            )
        made.append(
            Number(
                name=f"{what}, for each process from {COUNTS[0]} to {COUNTS[-1]:,}",
                measured=slope_ms(found, index),
                promise=1,
                reference_name="the same, raw",
                reference=slope_ms(raw, index),
            )
        )
    return made


def slope_ms(found: dict[int, tuple[float, float]], index: int) -> float:
    """Return what one more process takes, by the fewest and the most."""
    return (found[COUNTS[-1]][index] - found[COUNTS[0]][index]) / (COUNTS[-1] - COUNTS[0])


def suspend_and_wake_ms(count: int) -> tuple[float, float]:
    """Return the medians of a suspend and of the first command after it."""
    times = []
    with Sandbox.create() as sandbox:
        sandbox.processes.start(["bash", "-c", SLEEPERS.format(count=count)])
        wait_for(lambda: sandbox.files.exists("/tmp/ready"))
        for _ in range(ROUNDS):
            sandbox.processes.list()  # whoever looks at all of them may leave something to be saved
            time.sleep(SETTLED_S)
            suspend_ms = timed_ms(sandbox.suspend)
            time.sleep(SETTLED_S)
            times.append((suspend_ms, timed_ms(lambda: sandbox.exec(["true"]))))
        there = int(sandbox.run("pgrep -c -x sleep").stdout)
        if there != count:
            raise RuntimeError(f"{there} of {count} processes are left")
        sandbox.kill()
    return statistics.median(one[0] for one in times), statistics.median(one[1] for one in times)


def raw_ms(count: int) -> tuple[float, float]:
    """Return the same of raw ``runsc``, in a process that joins the holder's user namespace."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.processes", str(count)], stdout=subprocess.PIPE, check=True, text=True
    )
    suspend_ms, wake_ms = json.loads(done.stdout)
    return suspend_ms, wake_ms


def main(count: int) -> None:
    """Measure raw ``runsc`` and print what it took."""
    home = Home.default()
    image = Images(home.images).get("base")
    holder = find_holder(home)
    if image is None or holder is None:
        sys.exit("bench: make a sandbox first")
    join_holder(holder)
    times = []
    for _ in range(ROUNDS):
        with bundle(image.lowers[0], count) as directory:
            times.append(saved_and_restored_ms(directory))
    print(json.dumps([statistics.median(one[index] for one in times) for index in range(2)]))


@contextmanager
def bundle(rootfs: Path, count: int) -> Iterator[Path]:
    """Have a directory with the specification of a container that starts the sleepers."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as made:
        directory = Path(made)
        spec: dict[str, Any] = bundle_spec(rootfs)
        spec["process"]["args"] = ["/bin/bash", "-c", SLEEPERS.format(count=count)]
        spec["process"]["env"] = ["PATH=/usr/bin:/bin"]
        spec["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"})
        (directory / "config.json").write_text(json.dumps(spec))
        try:
            yield directory
        finally:
            for mount in mounts_below(directory):
                Mounts.unmount(mount)


def saved_and_restored_ms(directory: Path) -> tuple[float, float]:
    """Start the container, checkpoint it, restore it, and return what the last two took."""
    image = directory / "image"
    image.mkdir()
    try:
        runsc(directory, "run", "--detach", f"--bundle={directory}", "first")
        wait_for(
            lambda: not runsc(directory, "exec", "first", "/usr/bin/test", "-e", "/tmp/ready", may_fail=True)
        )
        time.sleep(SETTLED_S)
        suspend_ms = timed_ms(
            lambda: runsc(directory, "checkpoint", "--compression=none", f"--image-path={image}", "first")
        )
        runsc(directory, "delete", "--force", "first", may_fail=True)
        restore = [
            "restore",
            "--detach",
            "--background",
            f"--image-path={image}",
            f"--bundle={directory}",
            "second",
        ]

        def woken() -> None:
            runsc(directory, *restore)
            runsc(directory, "exec", "second", "/bin/true")

        return suspend_ms, timed_ms(woken)
    finally:
        for name in ("first", "second"):
            runsc(directory, "delete", "--force", name, may_fail=True)


def runsc(directory: Path, *command: str, may_fail: bool = False) -> int:
    """Run ``runsc`` and return its exit code."""
    argv: Sequence[str] = [str(runsc_path()), f"--root={directory / 'state'}", *FLAGS, *command]
    with open(os.devnull, "r+b") as null:
        done = subprocess.run(argv, stdin=null, stdout=null, stderr=null, timeout=BOUND_S)
    if done.returncode and not may_fail:
        raise RuntimeError(f"runsc {' '.join(command)} ended with {done.returncode}")
    return done.returncode


def wait_for(is_so: Callable[[], bool]) -> None:
    """Return when it is so."""
    end = time.monotonic() + BOUND_S
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("the processes did not start")
        time.sleep(0.2)


def timed_ms(action: Callable[[], object]) -> float:
    """Return what a call took."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main(int(sys.argv[1]))
