"""What differs between the files of two sandboxes is found from their layers, without waking them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll import Sandbox, Snapshots
from atoll.errors import InvalidSpecError, SandboxNotFoundError, SnapshotNotFoundError
from atoll.types import FileChange

pytestmark = pytest.mark.twice

TREE = "/home/user/tree"
# Changes a tree by chance: also directories that hide others, go elsewhere, or become something else.
CHANGES = r"""
import os, random, shutil, sys
dice = random.Random(sys.argv[1])
os.makedirs("/home/user/tree", exist_ok=True)
os.chdir("/home/user/tree")

def all_of(wanted):
    return sorted(
        os.path.join(top, name)
        for top, directories, files in os.walk(".")
        for name, is_directory in [*((each, True) for each in directories), *((each, False) for each in files)]
        if wanted is None or is_directory == wanted
    )

def place():
    directories = [".", *(each for each in all_of(True) if not os.path.islink(each))]
    return os.path.join(dice.choice(directories), dice.choice("abcdefgh"))

def write(path):
    with open(path, dice.choice("wa")) as file:
        file.write(dice.choice(["same", "other", "longer than these"]))

def clear(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

def turn():
    there = all_of(None)
    one = dice.choice(there or ["."])
    kind = dice.choice("write write write mkdir mkdir clear move move link symlink mode again touch".split())
    if kind == "write":
        write(place())
    elif kind == "mkdir":
        os.mkdir(place())
    elif kind == "clear":
        clear(one)
    elif kind == "move":
        os.rename(one, place())
    elif kind == "link":
        os.link(one, place(), follow_symlinks=False)
    elif kind == "symlink":
        os.symlink(dice.choice("abc"), place())
    elif kind == "mode":
        os.chmod(one, dice.choice([0o700, 0o755]))
    elif kind == "touch":
        os.utime(one, (1, 1), follow_symlinks=False)
    else:
        clear(one)
        os.mkdir(one) if dice.random() < 0.7 else write(one)

for _ in range(int(sys.argv[2])):
    try:
        turn()
    except (OSError, shutil.Error):
        pass
"""
WALK = r"""
import hashlib, json, os, stat
found = {}
for top, directories, files in os.walk("/home/user/tree"):
    for name in directories + files:
        path = os.path.join(top, name)
        status = os.lstat(path)
        content = ""
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            content = open(path).read()
        found[path] = [status.st_mode, status.st_uid, content]
print(json.dumps(found))
"""


def change(sandbox: Sandbox, seed: str, count: int = 40) -> None:
    """Change the tree of a sandbox by chance."""
    sandbox.run("cat > /tmp/changes.py", stdin=CHANGES.encode()).check()
    sandbox.exec(["python3", "/tmp/changes.py", seed, str(count)]).check()


def walked(sandbox: Sandbox) -> dict[str, list[object]]:
    """What a walk inside finds."""
    found: dict[str, list[object]] = json.loads(sandbox.exec(["python3", "-c", WALK]).check().stdout)
    return found


def told(changes: list[FileChange]) -> dict[str, str]:
    """The changes by path, without those of the directory itself."""
    return {each.path: each.change for each in changes if each.path != TREE}


def expected(here: dict[str, list[object]], there: dict[str, list[object]]) -> dict[str, str]:
    """What a comparison has to find."""
    both = here.keys() & there.keys()
    found = {path: "changed" for path in both if here[path] != there[path]}
    found |= dict.fromkeys(here.keys() - there.keys(), "added")
    return found | dict.fromkeys(there.keys() - here.keys(), "removed")


@pytest.mark.parametrize("seed", range(2))
def test_a_diff_finds_what_two_walks_find(module_home: Path, seed: int) -> None:
    with Sandbox.create() as work:
        change(work, f"{seed} base")
        below = work.snapshot()
        change(work, f"{seed} more")
        (fork,) = work.fork()
        with fork:
            change(fork, f"{seed} fork")
            above = fork.snapshot()
            change(fork, f"{seed} above")
            change(work, f"{seed} original")
            here, there = walked(fork), walked(work)
            assert told(fork.diff(work, paths=[TREE]).changes) == expected(here, there)
            assert told(work.diff(fork, paths=[TREE]).changes) == expected(there, here)
            with (
                Sandbox.create(below) as first,
                Sandbox.create(above) as second,
            ):
                old, new = walked(first), walked(second)
            fork.suspend()
            assert told(fork.diff(above, paths=[TREE]).changes) == expected(here, new)
            assert told(work.diff(below, paths=[TREE]).changes) == expected(there, old)
            assert fork.info().state == "suspended"
    for one in (above, below):
        Snapshots.delete(one.snapshot_id)


def test_a_diff_says_kinds_and_sizes_and_is_bounded_by_paths(module_home: Path) -> None:
    with Sandbox.create() as work:
        work.run("mkdir -p tree/sub; echo 12345 > tree/file; echo gone > tree/gone", cwd="/home/user").check()
        (fork,) = work.fork()
        with fork:
            assert fork.diff(work).changes == []
            fork.run(
                "rm tree/gone; rmdir tree/sub; ln -s / tree/sub; echo 6 >> tree/file", cwd="/home/user"
            ).check()
            found = {each.path: each for each in fork.diff(work)}
            assert found.keys() == {f"{TREE}/file", f"{TREE}/gone", f"{TREE}/sub"}
            file, gone, sub = (found[f"{TREE}/{name}"] for name in ("file", "gone", "sub"))
            assert (file.change, file.bytes_before, file.bytes_after) == ("changed", 6, 8)
            assert (gone.change, gone.kind_before, gone.kind_after) == ("removed", "file", None)
            assert (sub.kind_before, sub.kind_after) == ("directory", "symlink")
            assert [each.path for each in fork.diff(work, paths=[f"{TREE}/gone"])] == [f"{TREE}/gone"]
            assert [each.path for each in fork.diff(work, paths=["/etc/hostname"])] == ["/etc/hostname"]
            with pytest.raises(InvalidSpecError):
                fork.diff(work, paths=["tree"])
            with pytest.raises((SandboxNotFoundError, SnapshotNotFoundError)):
                fork.diff("nobody")
