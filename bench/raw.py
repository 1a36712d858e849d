"""The reference: raw ``runsc run`` of ``true`` on the same root file system, with nothing of atoll around it.

As an ordinary user runsc needs the same user namespace that atoll runs it in, so this measures in a process
of its own, which joins it first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from atoll.host import Home, Mounts, find_holder, join_holder, mounts_below, runsc_path
from atoll.images import Images
from bench.measure import median_ms

FLAGS = ["--platform=systrap", "--network=none", "--overlay2=none", "--ignore-cgroups"]


def cold_run_ms(rounds: int = 10) -> float:
    """Return the median of ``runsc run`` of ``true``, in milliseconds. The image and a holder must be there."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.raw", str(rounds)], capture_output=True, check=True, text=True
    )
    return float(done.stdout)


def main(rounds: int) -> None:
    """Measure and print the median."""
    home = Home.default()
    image = Images(home.images).get("base")
    holder = find_holder(home)
    if image is None or holder is None:
        sys.exit("bench: make a sandbox first")
    join_holder(holder)
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as directory:
        bundle = Path(directory)
        (bundle / "config.json").write_text(json.dumps(bundle_spec(image.lowers[0])))
        try:
            print(median_ms(lambda: run_once(bundle), rounds))
        finally:
            for mount in mounts_below(bundle):
                Mounts.unmount(mount)


def run_once(bundle: Path) -> None:
    """Run it once, from nothing to nothing."""
    subprocess.run(
        [runsc_path(), f"--root={bundle / 'state'}", *FLAGS, "run", f"--bundle={bundle}", "atoll-bench"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def bundle_spec(rootfs: Path) -> dict[str, object]:
    """The smallest specification that runs ``true``."""
    return {
        "ociVersion": "1.1.0",
        "root": {"path": str(rootfs), "readonly": True},
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/true"], "env": [], "cwd": "/"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))
