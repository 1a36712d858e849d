"""Real work, timed where it is done: uploaded into a sandbox, and run natively on the same disk.

``python3 chores.py prepare`` makes what the chores need, ``python3 chores.py ROUNDS`` prints the median seconds of
each as JSON. It runs with the image's own Python, so it imports nothing of atoll.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

AT = Path("/workspace/chores")
TREE_FILES = 20_000
C_FILES = 200
SMALL_FILES = 10_000
BIG_MIB = 1024
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "init.defaultBranch=main")


def prepare() -> None:
    """Make the repository and the C project; compilers and wheels are there already."""
    make_tree(AT / "origin")
    make_project(AT / "project")


def make_tree(at: Path) -> None:
    """A committed repository of many small files in some depth."""
    for number in range(TREE_FILES):
        path = at / f"part{number % 40}" / f"room{number // 40 % 25}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * (10 + number % 60))
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        run([*GIT, *words], at)


def make_project(at: Path) -> None:
    """Sources of a program in many files, with some headers that all of them read."""
    at.mkdir(parents=True)
    names = [f"unit{number}" for number in range(C_FILES)]
    body = "\n".join(
        f"static int step{n}(int x) {{ for (int i = 0; i < 9; i++) x = x * {n + 3} + (x >> 3); return x; }}"
        for n in range(30)
    )
    calls = " ".join(f"x += step{n}(x);" for n in range(30))
    for name in names:
        text = f"#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n{body}\n"
        (at / f"{name}.c").write_text(f"{text}int {name}(int x) {{ {calls} return x; }}\n")
    declared = "\n".join(f"int {name}(int);" for name in names)
    called = "\n".join(f"x += {name}(x);" for name in names)
    (at / "main.c").write_text(f"{declared}\nint main(void) {{ int x = 1;\n{called}\nreturn x & 1; }}\n")
    objects = " ".join(f"{name}.o" for name in [*names, "main"])
    rule = "%.o: %.c\n\tcc -O1 -c -o $@ $<\n"
    (at / "Makefile").write_text(f"all: program\nprogram: {objects}\n\tcc -o $@ $^\n{rule}")


def clone(at: Path) -> None:
    """Clone the tree by git's own protocol, and check it out."""
    run([*GIT, "clone", "-q", f"file://{AT}/origin", str(at / "clone")])


def status(at: Path) -> None:
    """Look whether anything of the clone has changed."""
    run([*GIT, "status", "--porcelain"], at / "clone")


def install(at: Path) -> None:
    """Install wheels that lie on the disk."""
    wheels = sorted(map(str, (AT / "wheels").glob("*.whl")))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--root-user-action=ignore",
    ]
    run([*pip, "--target", str(at / "site"), *wheels])


def build(at: Path) -> None:
    """Build the C project from nothing."""
    shutil.copytree(AT / "project", at / "project")
    run(["make", "-s", "-j2"], at / "project")


def small_files(at: Path) -> None:
    """Create, read and remove many small files."""
    (at / "small").mkdir()
    paths = [f"{at}/small/{number}" for number in range(SMALL_FILES)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(b"x" * 1000)
    for path in paths:
        with open(path, "rb") as file:
            file.read()
    for path in paths:
        os.unlink(path)


def write_big(at: Path) -> None:
    """Write a big file, not flushed."""
    block = os.urandom(1 << 20)
    with open(at / "big", "wb", buffering=0) as file:
        for _ in range(BIG_MIB):
            file.write(block)


def read_big(at: Path) -> None:
    """Read it."""
    block = bytearray(1 << 20)
    with open(at / "big", "rb", buffering=0) as file:
        while file.readinto(block):
            pass


# In this order: some need what an earlier one has made.
CHORES: dict[str, Callable[[Path], None]] = {
    "git clone": clone,
    "git status": status,
    "pip install": install,
    "make -j2": build,
    "10,000 small files": small_files,
    "1 GiB written": write_big,
    "1 GiB read": read_big,
}


def run(argv: list[str], cwd: Path | None = None) -> None:
    """Run a program that must succeed, without its output."""
    subprocess.run(argv, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def measure(rounds: int, names: list[str]) -> dict[str, float]:
    """The median seconds of each chore."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        at = AT / f"round{number}"
        at.mkdir()
        for name in names:
            began = time.perf_counter()
            CHORES[name](at)
            times[name].append(time.perf_counter() - began)
        shutil.rmtree(at)
    return {name: statistics.median(each) for name, each in times.items()}


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare()
    else:
        chosen = [name for name in CHORES if not sys.argv[2:] or any(word in name for word in sys.argv[2:])]
        json.dump(measure(int(sys.argv[1]), chosen), sys.stdout)
