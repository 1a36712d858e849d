"""A layer copied while its sandbox uses it: the copy is of the one instant at which the sandbox stood still."""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from tests.integration.snapshots.disks import Disks

pytestmark = pytest.mark.twice

MIB = 1 << 20


def seen(root: Path) -> dict[str, object]:
    """All that can be seen of a tree: kinds, modes, owners, times, contents, links."""
    found: dict[str, object] = {}
    names: dict[int, list[str]] = {}
    for directory, directories, files in os.walk(root):
        for path in (Path(directory, name) for name in (*directories, *files)):
            info, name = path.lstat(), str(path.relative_to(root))
            content: object = None
            if stat.S_ISREG(info.st_mode):
                content = path.read_bytes()
                names.setdefault(info.st_ino, []).append(name)
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            found[name] = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, content)
    found[""] = sorted(sorted(group) for group in names.values() if len(group) > 1)
    return found


def fill(root: Path) -> None:
    """Make files of all kinds."""
    for name in ("kept", "grown", "shrunk", "replaced", "removed", "renamed", "remoded", "linked", "stamped"):
        (root / name).write_bytes(name.encode() * 1000)
    for name in ("tree/a/b", "lost/a/b"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text(name)
    os.link(root / "kept", root / "tree/a/kept-too")
    (root / "pointer").symlink_to("kept")
    (root / "turns").write_text("a file")
    os.mkfifo(root / "pipe")
    with open(root / "sparse", "wb") as file:
        file.seek(64 * MIB)
        file.write(b"end")


async def age(root: Path) -> None:
    """Wait until all of it is older than the copy's doubts about time stamps, which would hide its comparisons."""
    os.sync()
    newest = max(path.lstat().st_ctime for path in root.rglob("*"))  # noqa: ASYNC240
    await asyncio.sleep(max(0.0, newest + 0.5 - time.time()))


def churn(root: Path) -> None:
    """Do to them whatever a guest may do."""
    with open(root / "grown", "ab") as file:
        file.write(b"more")
    os.truncate(root / "shrunk", 10)
    (root / "aside").write_text("new")
    (root / "aside").replace(root / "replaced")
    (root / "removed").unlink()
    (root / "renamed").rename(root / "tree/renamed")
    (root / "remoded").chmod(0o4711)
    os.chown(root / "kept", 1000, 1000)
    os.link(root / "linked", root / "linked-too")
    times = os.stat(root / "stamped")
    (root / "stamped").write_bytes(b"STAMPED" * 1000)
    os.utime(root / "stamped", ns=(times.st_atime_ns, times.st_mtime_ns))
    (root / "tree").rename(root / "moved")
    shutil.rmtree(root / "lost")
    (root / "lost").write_text("now a file")
    (root / "pointer").unlink()
    (root / "pointer").symlink_to("grown")
    (root / "turns").unlink()
    (root / "turns").mkdir()
    (root / "turns/inside").write_text("x")
    shutil.rmtree(root / "lib")
    (root / "etc/gone").unlink()


async def test_a_copy_has_everything_that_changed_meanwhile(disks: Disks) -> None:
    root = disks.start("a")
    fill(root)
    await age(root)
    copy = disks.layers.copy(disks.directory("a"))
    await copy.first()
    churn(root)
    before = seen(root)
    stack = (await copy.last(), *disks.stack("a"))
    await disks.layers.sync(stack[0])
    (root / "kept").write_text("later")
    assert seen(disks.start("b", stack)) == before


async def test_a_copy_in_one_go_is_the_same(disks: Disks) -> None:
    root = disks.start("a")
    fill(root)
    churn(root)
    copy = disks.layers.copy(disks.directory("a"))
    before = seen(root)
    assert seen(disks.start("b", (await copy.last(), *disks.stack("a")))) == before


async def test_writes_through_a_mapping_are_in_the_copy(disks: Disks) -> None:
    root = disks.start("a")
    (root / "mapped").write_bytes(bytes(4 * mmap.PAGESIZE))
    with open(root / "mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:  # noqa: ASYNC230
        for number in range(1, 6):
            # The page is writable from the write before, so this one leaves no time stamp.
            memory[0:1] = bytes([number])
            copy = disks.layers.copy(disks.directory("a"))
            await copy.first()
            memory[mmap.PAGESIZE : mmap.PAGESIZE + 1] = bytes([number])
            memory[0:1] = bytes([number + 100])
            layer = disks.path / "layers" / await copy.last()
            copied = (layer / "mapped").read_bytes()
            assert (copied[0], copied[mmap.PAGESIZE]) == (number + 100, number)


async def test_a_link_within_a_renamed_directory_stays_a_link(disks: Disks) -> None:
    root = disks.start("a")
    (root / "b").mkdir()
    (root / "z").mkdir()
    (root / "b/one").write_text("x")
    os.link(root / "b/one", root / "z/two")
    await age(root)
    copy = disks.layers.copy(disks.directory("a"))
    await copy.first()
    (root / "b").rename(root / "a")
    before = seen(root)
    assert seen(disks.start("b", (await copy.last(), *disks.stack("a")))) == before


async def test_a_written_hard_link_of_the_image_is_one_in_the_copy(disks: Disks) -> None:
    root = disks.start("a")
    copy = disks.layers.copy(disks.directory("a"))
    await copy.first()
    with open(root / "tool", "a") as file:  # noqa: ASYNC230
        file.write("+a")
    before = seen(root)
    assert seen(disks.start("b", (await copy.last(), *disks.stack("a")))) == before


async def test_the_sandbox_goes_on_with_its_own_layer(disks: Disks) -> None:
    root = disks.start("a")
    (root / "log").write_text("1")
    with open(root / "log", "a") as log:  # noqa: ASYNC230
        stack = await disks.snapshot("a")
        log.write("2")
    (disks.start("b", stack) / "log").write_text("other")
    assert (root / "log").read_text() == "12"


async def test_a_copy_survives_a_guest_that_never_stops_changing(disks: Disks) -> None:
    root = disks.start("a")
    fill(root)
    writer = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        "while :; do for n in 1 2 3 4 5 6 7 8 9; do mkdir -p d$n/e; echo $n >d$n/e/f; ln -sf e d$n/s; "
        "rm -f d$n/x; mv d$n/e d$n/x 2>/dev/null; rm -rf d$n; ln -s . d$n; rm -rf d$n; done; done",
        cwd=root,
    )
    try:
        copy = disks.layers.copy(disks.directory("a"))
        for _ in range(5):
            await copy.first()
            await copy.abandon()
            copy = disks.layers.copy(disks.directory("a"))
        await copy.first()
    finally:
        writer.kill()
        await writer.wait()
    # A child of the shell may live a little longer than it.
    before = await still(root)
    assert seen(disks.start("b", (await copy.last(), *disks.stack("a")))) == before


async def still(root: Path) -> dict[str, object]:
    """What is seen of a tree once nothing changes in it any more."""
    while True:
        try:
            before = seen(root)
            await asyncio.sleep(0.2)
            if seen(root) == before:
                return before
        except FileNotFoundError:
            continue


async def test_an_abandoned_copy_leaves_nothing(disks: Disks) -> None:
    (disks.start("a") / "file").write_text("x")
    copy = disks.layers.copy(disks.directory("a"))
    await copy.first()
    await copy.abandon()
    await copy.abandon()
    assert list((disks.path / "layers").iterdir()) == []


async def test_a_cancelled_copy_can_be_abandoned(disks: Disks) -> None:
    root = disks.start("a")
    for number in range(300):
        (root / f"file-{number}").write_bytes(bytes(1000))
    copy = disks.layers.copy(disks.directory("a"))
    first = asyncio.create_task(copy.first())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await copy.abandon()
    assert list((disks.path / "layers").iterdir()) == []


async def test_what_a_crash_left_of_a_copy_is_found_and_erased(disks: Disks) -> None:
    (disks.start("a") / "file").write_text("x")
    stack = await disks.snapshot("a")
    copy = disks.layers.copy(disks.directory("a"))
    await copy.first()
    assert disks.layers.ids() == [stack[0]]
    assert disks.layers.remove_unfinished() == [copy.layer_id]
    assert [path.name for path in (disks.path / "layers").iterdir()] == [stack[0]]
