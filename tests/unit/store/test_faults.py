"""Faults of disks, networks and other homes that must neither lose a state nor store a wrong one."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.store.stores import Clock, MemoryObjects, erase, get, noise, put

from atoll.errors import DamagedError, InternalError, StoreConflictError, StoreError
from atoll.store import (
    Collector,
    Content,
    Record,
    Store,
    StoreKey,
)
from atoll.store.catalog import put_index
from atoll.store.frames import FrameEntry, PackIndex

DATA = noise(1, 64)


def a_store(objects: MemoryObjects | None = None, key: StoreKey | None = None) -> Store:
    return Store(objects=objects or MemoryObjects(), key=key or StoreKey.new(), now_s=Clock())


def test_a_writer_that_has_failed_commits_nothing_any_more() -> None:
    objects = MemoryObjects()
    store = a_store(objects)
    with store.writing() as writing:
        content = writing.writer.write(DATA)
        objects.left = 0
        record = Record(kind="snapshot", record_id="a", changed_at=0.0)
        with pytest.raises(StoreError, match="power"):
            writing.commit(record, {"memory": content})
        objects.left = None
        with pytest.raises(StoreError, match="begin again"):
            writing.commit(record, {"memory": content})
    assert store.records.find("snapshot", "a") is None


def test_a_record_names_only_what_its_writer_has_written() -> None:
    store = a_store()
    with store.writing() as writing, pytest.raises(InternalError, match="another writer"):
        other = Content(10, bytes(16), (0, 0, 10))
        writing.commit(Record(kind="snapshot", record_id="a", changed_at=0.0), {"memory": other})


def test_an_object_that_hides_for_a_moment_costs_no_state() -> None:
    objects = MemoryObjects()
    store = a_store(objects)
    put(store, "a", noise(1, 5000))  # more than one pack
    put(store, "b", noise(2, 8))
    hidden = max(
        (name for name in objects.objects if "/packs/" in name), key=lambda name: len(objects.objects[name])
    )
    data = objects.objects.pop(hidden)
    with pytest.raises(DamagedError, match="is missing"):
        get(store, "a")
    with pytest.raises(DamagedError, match="missing"):
        Collector(store=store).collect()
    objects.objects[hidden] = data
    for _ in range(3):
        Collector(store=store).collect()
        assert isinstance(store.now_s, Clock)
        store.now_s.now_s += 2 * store.grace_s
    assert get(store, "a") == noise(1, 5000)
    assert get(store, "b") == noise(2, 8)


def test_what_was_lost_is_stored_again() -> None:
    objects = MemoryObjects()
    store = a_store(objects)
    put(store, "a", DATA)
    for name in [name for name in objects.objects if "/packs/" in name]:
        del objects.objects[name]
    with pytest.raises(StoreError, match="do it again"):
        put(store, "b", DATA)
    put(store, "b", DATA)
    assert get(store, "b") == DATA


def test_a_lost_index_removes_nothing() -> None:
    objects = MemoryObjects()
    store = a_store(objects)
    put(store, "a", DATA)
    put(store, "b", noise(2, 64))
    index = next(name for name in objects.objects if "/indexes/" in name)
    data = objects.objects.pop(index)
    with pytest.raises(DamagedError, match="missing"):
        Collector(store=store).collect()
    objects.objects[index] = data
    Collector(store=store).collect()
    assert (get(store, "a"), get(store, "b")) == (DATA, noise(2, 64))


@pytest.mark.parametrize("name", ["condemned/readme", "packs/readme", "packs/aa/", "records/readme"])
def test_an_object_of_somebody_else_disturbs_nobody(name: str) -> None:
    objects = MemoryObjects()
    store = a_store(objects)
    put(store, "a", DATA)
    objects.objects[f"{store.key.domain}/{name}"] = b"hello"
    Collector(store=store).collect()
    put(store, "b", DATA)
    assert get(a_store(objects, store.key), "b") == DATA


@pytest.mark.parametrize(
    "entry",
    [
        FrameEntry(bytes(16), 100, -2),
        FrameEntry(bytes(16), 100, 1 << 40),
        FrameEntry(bytes(16), 1 << 63, 10),
        FrameEntry(bytes(16), 0, 10),
        FrameEntry(bytes(3), 100, 10),
    ],
    ids=["unlimited", "endless", "huge", "nothing", "short"],
)
def test_an_index_with_numbers_that_cannot_be_is_refused(entry: FrameEntry) -> None:
    store = a_store()
    put_index(store.objects, store.key, [PackIndex(bytes(16), [entry])])
    with pytest.raises(DamagedError, match="cannot be read"):
        store.catalog.refresh()


@pytest.mark.parametrize("size", [-1, 1 << 36, 1 << 50])
def test_a_content_longer_than_any_is_not_read_at_once(size: int) -> None:
    with a_store().reading() as reader, pytest.raises(DamagedError, match="more than any"):
        reader.read(Content(size))


def test_a_record_says_its_own_name() -> None:
    store = a_store()
    other = msgspec.msgpack.encode(Record(kind="snapshot", record_id="../../etc", changed_at=0.0))
    name = f"{store.key.domain}/records/snapshot/a"
    store.objects.put(name, store.key.seal(name, other))
    with pytest.raises(DamagedError, match="etc"):
        store.records.find("snapshot", "a")


def test_a_record_that_somebody_else_has_taken_is_not_erased() -> None:
    store = a_store()
    mine = store.records.create(Record(kind="sandbox", record_id="a", changed_at=0.0, owner="me"))
    theirs = store.records.replace(mine, Record(kind="sandbox", record_id="a", changed_at=1.0, epoch=1))
    with pytest.raises(StoreConflictError):
        store.records.erase(mine, 2.0)
    store.records.erase(theirs, 2.0)
    assert store.records.find("sandbox", "a") is None
    assert list(store.records.list()) == []
    again = store.records.create(Record(kind="sandbox", record_id="a", changed_at=3.0))
    assert store.records.find("sandbox", "a") == again


def failing(code: int) -> Callable[[int, int, int], int]:
    def lseek(descriptor: int, at: int, how: int) -> int:
        raise OSError(code, os.strerror(code))

    return lseek


def test_a_disk_that_fails_stores_no_zeros(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    with open(tmp_path / "file", "rb") as file, a_store().writing() as writing:
        monkeypatch.setattr(os, "lseek", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            writing.writer.write_file(file.fileno(), len(DATA))
        monkeypatch.setattr(os, "lseek", failing(errno.EINVAL))  # a file system that reports no holes
        content = writing.writer.write_file(file.fileno(), len(DATA))
        writing.writer.finish()
        with writing.store.reading() as reader:
            assert reader.read(content) == DATA
        monkeypatch.undo()
        os.truncate(tmp_path / "file", 0)
        with pytest.raises(StoreError, match="shorter"):
            writing.writer.write_file(file.fileno(), len(DATA))


def test_a_catalog_in_use_elsewhere_is_waited_for_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.store.catalog_file._BUSY_S", 0.05)
    path = tmp_path / "catalog.db"
    store = Store(objects=MemoryObjects(), key=StoreKey.new(), catalog_path=path)
    put(store, "a", DATA)
    inode = path.stat().st_ino
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        put(store, "b", noise(9, 8))
    other.execute("ROLLBACK")
    other.close()
    again = Store(objects=store.objects, key=store.key, catalog_path=path)
    assert get(again, "a") == DATA
    assert path.stat().st_ino == inode
    again.close()
    store.close()


def test_an_erased_record_leaves_nothing_after_the_grace() -> None:
    objects, clock = MemoryObjects(), Clock()
    store = Store(objects=objects, key=StoreKey.new(), now_s=clock)
    put(store, "a", DATA)
    erase(store, "a")
    assert store.records.names() != ()
    for _ in range(5):
        clock.now_s += store.grace_s + 3
        Collector(store=store).collect()
    assert [name for name in objects.objects if "/lease/" not in name] == []
