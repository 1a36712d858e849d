"""Layers merged into one: whatever was done on them, disks on the one show what disks on the many showed."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from tests.integration.snapshots.disks import Disks
from tests.integration.snapshots.test_layer_copy import seen

from atoll.errors import InternalError
from atoll.snapshots import Stack, new_layer_id

pytestmark = pytest.mark.twice

REFUSED = (errno.EXDEV, errno.ENOTEMPTY, errno.EINVAL, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EPERM)


def merged(disks: Disks, stack: Stack, begin: int, end: int) -> Stack:
    layer = new_layer_id()
    disks.layers.merge(stack[begin:end], layer)
    return (*stack[:begin], layer, *stack[end:])


def change(root: Path, dice: random.Random, count: int) -> None:
    """Do things at random that a guest may do to a tree."""
    for number in range(count):
        everything = sorted(root.rglob("*"))
        directories = [root, *(path for path in everything if path.is_dir() and not path.is_symlink())]
        files = [path for path in everything if path.is_file() and not path.is_symlink()]
        new = dice.choice(directories) / f"{dice.choice('abcde')}{dice.choice(['', number])}"
        what = dice.choice(("make", "mkdir", "write", "link", "remove", "rmtree", "rename", "rename", "mode"))
        try:
            if what == "make":
                new.write_text(f"{number}")
            elif what == "mkdir":
                new.mkdir()
            elif what == "write" and files:
                dice.choice(files).write_text(f"{number} written")
            elif what == "link" and files:
                os.link(dice.choice(files), new)
            elif what == "remove" and files:
                dice.choice(files).unlink()
            elif what == "rmtree" and dice.random() < 0.3 and len(directories) > 1:
                shutil.rmtree(dice.choice(directories[1:]))
            elif what == "rename" and everything:
                dice.choice(everything).rename(new)
            elif what == "mode" and everything:
                os.chmod(dice.choice(everything), 0o700 | number % 8, follow_symlinks=True)
        except OSError as error:
            assert error.errno in REFUSED, error


@pytest.mark.parametrize("seed", range(5))
def test_a_merge_of_any_run_shows_the_same_disk(disks: Disks, seed: int) -> None:
    dice = random.Random(seed)
    root = disks.start("a")
    stack: Stack = ()
    for number in range(6):
        change(root, dice, 25)
        if not disks.complete:
            continue
        stack = disks.freeze("a")
        root = disks.start("a", stack)
        shown = seen(root)
        for begin in range(len(stack) - 1):
            end = dice.randint(begin + 2, len(stack))
            found = seen(disks.start(f"{number}-{begin}", merged(disks, stack, begin, end)))
            assert found == shown, f"seed {seed}: layers {begin} to {end} of {len(stack)}"
            disks.stop(f"{number}-{begin}")
    if not disks.complete:
        with pytest.raises(InternalError):
            disks.layers.merge(("a", "b"), new_layer_id())


def test_a_disk_goes_on_above_a_merged_run(disks: Disks) -> None:
    root = disks.start("a")
    if not disks.complete:
        return
    stack: Stack = ()
    for number in range(4):
        (root / f"d{number}").mkdir()
        (root / f"d{number}/file").write_text("x")
        os.link(root / f"d{number}/file", root / f"link{number}")
        stack = disks.freeze("a")
        root = disks.start("a", stack)
    (root / "lib").rename(root / "moved")
    (root / "link0").write_text("through one name")
    shown = seen(root)
    disks.stop("a")
    assert disks.layers.settled(disks.directory("a"))
    disks.layers.forget_freeze(disks.directory("a"))
    shorter = merged(disks, stack, 0, 4)
    root = disks.layers.mount((disks.image,), shorter, disks.directory("a"))
    assert seen(root) == shown
    (root / "link1").write_text("through the other")
    (root / "d2").rename(root / "moved/d2")
    assert (root / "d0/file").read_text() == "through one name"
    assert (root / "d1/file").read_text() == "through the other"
    assert (root / "moved/d2/file").read_text() == "x"


def test_a_merge_that_fails_leaves_nothing(disks: Disks) -> None:
    (disks.start("a") / "file").write_text("x")
    if not disks.complete:
        return
    stack = disks.freeze("a")
    with pytest.raises(Exception, match="could not be copied"):
        disks.layers.merge((*stack, "missing"), new_layer_id())
    assert [path.name for path in (disks.path / "layers").iterdir()] == list(stack)
