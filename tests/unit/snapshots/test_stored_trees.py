"""A tree that was stored comes back exactly."""

from __future__ import annotations

import os
import random
import socket
import stat
from pathlib import Path

import msgspec
import pytest
from tests.unit.host.test_tree_copy import listing
from tests.unit.store.stores import store_in_directory

from atoll.errors import DamagedError
from atoll.host import remove_tree
from atoll.snapshots import restore_tree, store_tree
from atoll.snapshots.stored_trees import StoredDirectory, StoredEntry
from atoll.store import Content, Store, stored_bytes


def stored(store: Store, top: Path) -> Content:
    with store.writing() as writing:
        tree = store_tree(writing.writer, top)
        writing.writer.finish()
    return tree


def restored(store: Store, tree: Content, into: Path) -> None:
    into.mkdir()
    with store.reading() as reader:
        restore_tree(reader, tree, into)


def made(top: Path) -> None:
    top.mkdir()
    (top / "directory").mkdir()
    (top / "directory" / "file").write_bytes(b"content")
    (top / "empty").touch(mode=0o640)
    (top / "program").write_bytes(b"#!/bin/sh\n")
    (top / "link").symlink_to("../nowhere\nat all")
    (top / os.fsdecode(b"\xff name")).write_bytes(b"x" * 3_000_000)
    os.mkfifo(top / "fifo", 0o620)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(top / "socket"))
    os.setxattr(top / "program", "user.note", b"\0\xff")
    os.setxattr(top / "directory", "user.note", b"of a directory")
    os.link(top / "program", top / "directory" / "other name")
    os.link(top / "fifo", top / "second fifo")
    with open(top / "sparse", "wb") as sparse:
        sparse.truncate(50 << 20)
        sparse.seek(20 << 20)
        sparse.write(b"in the middle")
    for number in range(700):
        (top / "directory" / f"small-{number}").write_bytes(b"small %d" % number * (number % 50))
    os.utime(top / "directory" / "file", ns=(5, -(10**18) - 1))
    (top / "program").chmod(0o6755)
    (top / "directory").chmod(0o551)
    os.utime(top / "directory", ns=(0, 123_456_789_012))
    os.utime(top, ns=(0, 77))
    if os.geteuid() == 0:
        os.chown(top / "program", 1234, 4321)
        (top / "program").chmod(0o6755)
        os.mknod(top / "whiteout", stat.S_IFCHR | 0o600, os.makedev(0, 0))


def test_a_tree_comes_back_with_all_that_it_has(tmp_path: Path) -> None:
    made(tmp_path / "source")
    with store_in_directory() as (store, _):
        tree = stored(store, tmp_path / "source")
        restored(store, tree, tmp_path / "target")
        assert listing(tmp_path / "target") == listing(tmp_path / "source")
        assert (tmp_path / "target" / "sparse").stat().st_blocks < 4096
        one, other = (tmp_path / "target" / name for name in ("program", "directory/other name"))
        assert one.stat().st_ino == other.stat().st_ino
        # seven hundred small files share frames
        assert len(store.catalog.packs()) == 1
        assert len(store.catalog.file.all("SELECT frame FROM frames")) < 30


def test_the_same_tree_takes_nothing_a_second_time(tmp_path: Path) -> None:
    made(tmp_path / "source")
    with store_in_directory() as (store, _):
        tree = stored(store, tmp_path / "source")
        before = stored_bytes(store)
        assert stored(store, tmp_path / "source") == tree
        (tmp_path / "source" / "directory").chmod(0o755)
        (tmp_path / "source" / "directory" / "small-1").write_bytes(b"changed")
        stored(store, tmp_path / "source")
        assert stored_bytes(store) - before < 80_000


def test_random_trees_come_back(tmp_path: Path) -> None:
    chance = random.Random(4)
    top = tmp_path / "source"
    top.mkdir()
    places = [top]
    for number in range(300):
        place = chance.choice(places) / f"{number}"
        if chance.random() < 0.3:
            place.mkdir()
            places.append(place)
        elif chance.random() < 0.2:
            place.symlink_to(f"{number - 1}")
        else:
            place.write_bytes(chance.randbytes(chance.randrange(200_000) if chance.random() < 0.1 else 50))
    with store_in_directory() as (store, _):
        restored(store, stored(store, top), tmp_path / "target")
    assert listing(tmp_path / "target") == listing(top)


def test_a_tree_deeper_than_any_path_comes_back(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    here = os.open(tmp_path / "source", os.O_RDONLY)
    for _ in range(60):
        os.mkdir("n" * 200, dir_fd=here)
        deeper = os.open("n" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here), "w") as file:
        file.write("deep")
    os.close(here)
    with store_in_directory() as (store, _):
        tree = stored(store, tmp_path / "source")
        restored(store, tree, tmp_path / "target")
        assert stored(store, tmp_path / "target") == tree
    remove_tree(tmp_path / "source")
    remove_tree(tmp_path / "target")


def entry(name: bytes, mode: int = stat.S_IFREG | 0o644, target: bytes = b"") -> StoredEntry:
    owner = (os.getuid(), os.getgid())
    return StoredEntry(name=name, mode=mode, owner=owner, modified=(1, 2), target=target)


TOP = StoredDirectory(0, b"")


@pytest.mark.parametrize(
    "records",
    [
        [TOP, entry(b"../out")],
        [TOP, entry(b"..")],
        [TOP, entry(b"/out")],
        [TOP, entry(b"a\0b")],
        [TOP, StoredDirectory(1, b"..")],
        [TOP, StoredDirectory(3, b"a")],
        [entry(b"first")],
        [
            TOP,
            entry(b"way", stat.S_IFLNK | 0o777, b"/tmp"),
            StoredDirectory(1, b"way"),
            entry(b"out"),
        ],
        [TOP, entry(b"twice"), entry(b"twice")],
    ],
    ids=["up", "parent", "root", "zero", "parent-directory", "no-parent", "no-directory", "symlink", "twice"],
)
def test_a_list_that_would_write_elsewhere_is_refused(
    records: list[StoredEntry | StoredDirectory], tmp_path: Path
) -> None:
    data = msgspec.msgpack.encode(records)
    with store_in_directory() as (store, _):
        with store.writing() as writing:
            tree = writing.writer.write(len(data).to_bytes(4, "big") + data)
            writing.writer.finish()
        descriptors = len(os.listdir("/proc/self/fd"))
        with pytest.raises((DamagedError, OSError)):
            restored(store, tree, tmp_path / "target")
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


def test_a_list_that_is_rubbish_is_refused(tmp_path: Path) -> None:
    with store_in_directory() as (store, _):
        with store.writing() as writing:
            tree = writing.writer.write(b"\0\0\0\5rubbish")
            writing.writer.finish()
        with pytest.raises(DamagedError, match="cannot be read"):
            restored(store, tree, tmp_path / "target")


def test_equal_pages_are_found_in_the_files_of_a_checkpoint(tmp_path: Path) -> None:
    memory = random.Random(3).randbytes(300 * 4096)
    with store_in_directory() as (store, _):
        for name, pages in (("first", memory), ("second", bytes(4096) + memory[:4096] * 3 + memory)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "pages.img").write_bytes(pages)
        with store.writing() as writing:
            store_tree(writing.writer, tmp_path / "first", pages=True)
            writing.writer.finish()
        before = stored_bytes(store)
        with store.writing() as writing:
            tree = store_tree(writing.writer, tmp_path / "second", pages=True)
            writing.writer.finish()
        assert stored_bytes(store) - before < 6000
        restored(store, tree, tmp_path / "target")
        assert listing(tmp_path / "target") == listing(tmp_path / "second")


def test_an_attribute_whose_name_is_no_text_comes_back(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").touch()
    os.setxattr(os.fsencode(tmp_path / "source" / "file"), b"user.\xff", b"1")
    with store_in_directory() as (store, _):
        restored(store, stored(store, tmp_path / "source"), tmp_path / "target")
    assert listing(tmp_path / "target") == listing(tmp_path / "source")


@pytest.mark.parametrize(
    "strange",
    [
        {"owner": (-5, 1 << 40)},
        {"modified": (1 << 80, 0)},
        {"attributes": {b"user.a\0b": b""}},
        {"content": Content(-1)},
    ],
    ids=lambda strange: next(iter(strange)),
)
def test_an_entry_that_cannot_be_is_damage(strange: dict[str, object], tmp_path: Path) -> None:
    wrong = msgspec.structs.replace(entry(b"file"), **strange)
    try:
        data = msgspec.msgpack.encode([TOP, wrong])
    except OverflowError:
        data = b"\x91\xc1"
    with store_in_directory() as (store, _):
        with store.writing() as writing:
            tree = writing.writer.write(len(data).to_bytes(4, "big") + data)
            writing.writer.finish()
        with pytest.raises((DamagedError, OSError)):
            restored(store, tree, tmp_path / "target")
