"""The reference for work: a program run natively, on a copy-on-write view of a suspended sandbox's disk.

It is the same program with the same libraries on the same file system, in a chroot instead of a sandbox. As an
ordinary user that takes the namespaces that atoll runs in, so this is a process of its own, which joins them first.
"""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from atoll.errors import HostError
from atoll.host import Home, Mounts, find_holder, join_holder, remove_tree
from atoll.images import Images

USER = "1000:1000"
SETTLE_S = 60.0
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME": "/home/user", "LANG": "C.UTF-8"}
_ENTER = """
mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" || exit 125
root=$1; shift; exec chroot --userspec="$ATOLL_BENCH_USER" "$root" env -u ATOLL_BENCH_USER "$@"
"""


def run_natively(sandbox_id: str, argv: list[str]) -> str:
    """Return what a program writes that runs on the disk of a suspended sandbox; it changes nothing there."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.native", sandbox_id, *argv],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    return done.stdout


def main(sandbox_id: str, argv: list[str]) -> int:
    """Run it and return its exit code."""
    home = Home.default()
    image = Images(home.images).get("base")
    holder = find_holder(home)
    if image is None or holder is None:
        sys.exit("bench: make a sandbox first")
    join_holder(holder)
    (disk,) = (home.sandboxes / sandbox_id).glob("*/upper")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=home.path) as directory:
        upper, work, root = (Path(directory) / name for name in ("upper", "work", "root"))
        for path in (upper, work, root):
            path.mkdir()
        until_s = time.monotonic() + SETTLE_S
        while True:
            try:
                Mounts.overlay([disk, *image.lowers], upper, work, root, complete=not holder.user_namespace)
                break
            except HostError as error:
                # The mount of before is in use until the kernel has written out what the preparations left.
                busy = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EBUSY
                if not busy or time.monotonic() > until_s:
                    raise
            time.sleep(0.2)
        try:
            enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(root)]
            return subprocess.run([*enter, *argv], env={**ENV, "ATOLL_BENCH_USER": USER}).returncode
        finally:
            Mounts.unmount(root)
            remove_tree(Path(directory))
            Path(directory).mkdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
