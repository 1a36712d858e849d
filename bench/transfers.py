"""Files between host and sandbox, big and many, against copies that stay on the host's disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

from atoll import Sandbox
from bench.measure import Number, median_ms
from bench.rooms import supervisor

BIG_BYTES = 100_000_000
SMALL_FILES = 1000
SMALL_BYTES = 1000
ROUNDS = 5
# 100 MB in this many milliseconds are 200 MB/s
BIG_MS = 500
SMALL_MS = 1000
ONE_BY_ONE_MS = 2000
COPY_FILE = "copy on the host"
COPY_TREE = "copy of the tree on the host"


def numbers() -> list[Number]:
    """Measure."""
    with (
        supervisor(pool_size=0),
        tempfile.TemporaryDirectory(prefix="atoll-bench-") as directory,
        Sandbox.create() as sandbox,
    ):
        return [*big(sandbox, Path(directory)), *small(sandbox, Path(directory))]


def big(sandbox: Sandbox, at: Path) -> list[Number]:
    """One file of 100 MB, by the file and by bytes in memory."""
    content = os.urandom(BIG_BYTES)
    (at / "big").write_bytes(content)
    inside = "/workspace/big"
    copy_ms = median_ms(lambda: shutil.copyfile(at / "big", at / "copy"), ROUNDS)
    actions = {
        "upload of 100 MB": lambda: sandbox.files.upload(at / "big", inside),
        "download of 100 MB": lambda: sandbox.files.download(inside, at / "back"),
        "files.write of 100 MB": lambda: sandbox.files.write(inside, content),
        "files.read_bytes of 100 MB": lambda: sandbox.files.read_bytes(inside),
    }
    measured = [
        Number(
            name=name, measured=median_ms(action, ROUNDS), promise=BIG_MS,
            reference_name=COPY_FILE, reference=copy_ms,
        )
        for name, action in actions.items()
    ]  # fmt: skip
    if (at / "back").read_bytes() != content:
        raise AssertionError("what came back is not what was sent")
    return measured


def small(sandbox: Sandbox, at: Path) -> list[Number]:
    """A thousand files, as one tree and one by one."""
    names = [f"room{number % 20}/file{number}" for number in range(SMALL_FILES)]
    for name in names:
        path = at / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    content = os.urandom(SMALL_BYTES)
    fresh = count()

    def write_each() -> None:
        at_inside = f"/workspace/each{next(fresh)}"
        for name in names:
            sandbox.files.write(f"{at_inside}/{name}", content)

    def read_each() -> None:
        for name in names:
            sandbox.files.read_bytes(f"/workspace/tree0/{name}")

    copy_ms = median_ms(lambda: shutil.copytree(at / "tree", at / f"copy{next(fresh)}"), ROUNDS)
    fresh = count()
    actions = {
        "upload of 1,000 small files": (
            SMALL_MS,
            lambda: sandbox.files.upload(at / "tree", f"/workspace/tree{next(fresh)}"),
        ),
        "download of 1,000 small files": (
            SMALL_MS,
            lambda: sandbox.files.download("/workspace/tree0", at / f"back{next(fresh)}"),
        ),
        "1,000 small files written one by one": (ONE_BY_ONE_MS, write_each),
        "1,000 small files read one by one": (ONE_BY_ONE_MS, read_each),
    }
    return [
        Number(
            name=name, measured=median_ms(action, ROUNDS), promise=promise,
            reference_name=COPY_TREE, reference=copy_ms,
        )
        for name, (promise, action) in actions.items()
    ]  # fmt: skip
