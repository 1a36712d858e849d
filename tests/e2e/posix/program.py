"""Runs inside a sandbox, as root: what a file system must do, on files that were made before or just now.

``prepare DIRECTORY`` makes a tree, ``act DIRECTORY`` does everything to it and tells as JSON what went wrong, by
the name of the check. In between there may be a suspend, a fork or a rollback: the tree then lies in another layer.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable

from checks_names import NAME_CHECKS, WITH_MANY
from checks_objects import OBJECT_CHECKS

Check = Callable[[str], None]


def prepare(top: str) -> None:
    """Make the tree that every check starts from, once for each check."""
    for name in checks():
        make_tree(os.path.join(top, name))


def make_tree(d: str) -> None:
    """Make files of every kind in a new directory."""
    os.makedirs(d, 0o755)
    os.umask(0)
    write(f"{d}/f", b"hello")
    write(f"{d}/g", b"other")
    write(f"{d}/empty", b"")
    os.makedirs(f"{d}/dir/sub")
    write(f"{d}/dir/x", b"x")
    write(f"{d}/dir/sub/y", b"y")
    os.mkdir(f"{d}/edir")
    os.mkdir(f"{d}/edir2")
    os.symlink("f", f"{d}/link")
    os.symlink("nowhere", f"{d}/dangling")
    os.symlink("loop", f"{d}/loop")
    os.mkfifo(f"{d}/fifo")
    write(f"{d}/h1", b"linked")
    os.link(f"{d}/h1", f"{d}/h2")
    os.link(f"{d}/h1", f"{d}/dir/h3")
    with open(f"{d}/sparse", "wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 20)
        file.write(b"end")
    os.mkdir(f"{d}/sticky")
    os.chmod(f"{d}/sticky", 0o1777)
    write(f"{d}/sticky/roots", b"")
    write(f"{d}/sticky/users", b"")
    os.chown(f"{d}/sticky/users", 1000, 1000)
    write(f"{d}/owned", b"user")
    os.chown(f"{d}/owned", 1000, 1000)
    write(f"{d}/setuid", b"")
    os.chmod(f"{d}/setuid", 0o4755)
    os.setxattr(f"{d}/f", "user.kept", b"value")
    os.utime(f"{d}/g", ns=(1_000_000_007, 2_000_000_009))
    os.mkdir(f"{d}/big")
    if os.path.basename(d) in WITH_MANY:
        for number in range(64):
            write(f"{d}/big/{number}", b"")


def write(path: str, content: bytes) -> None:
    """Make a file."""
    with open(path, "wb") as file:
        file.write(content)


def checks() -> dict[str, Check]:
    """All of them, by name."""
    return {**NAME_CHECKS, **OBJECT_CHECKS}


def act(top: str) -> dict[str, str]:
    """Do all checks; what went wrong by name."""
    wrong = {}
    for name, check in checks().items():
        d = os.path.join(top, name)
        try:
            assert stat.S_ISDIR(os.stat(d).st_mode)
            check(d)
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.chdir("/")
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    print(json.dumps({"checks": len(checks()), "wrong": act(sys.argv[2]) if sys.argv[1] == "act" else {}}))
