"""Directories and object stores behave alike, and a provider's failures are told."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.store.s3 import S3, s3_server
from tests.unit.store.stores import erase, get, noise, put

from atoll.errors import InvalidSpecError, NoSpaceError, StoreConflictError, StoreError
from atoll.store import Collector, DirectoryObjects, MissingObjectError, Objects, Store, StoreKey
from atoll.store.remote import RemoteObjects

LEFT = "left"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["directory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return DirectoryObjects(tmp_path / "objects")
    server: S3 = request.getfixturevalue("s3")
    return server.objects(f"t{os.urandom(6).hex()}")


def test_objects_are_written_read_listed_and_removed(objects: Objects) -> None:
    assert list(objects.list("a")) == []
    objects.put("a/b/c", b"0123456789")
    objects.put("a/b/c", b"abcdefghij")
    objects.put("ab/c", b"x")
    assert objects.read("a/b/c") == b"abcdefghij"
    assert objects.read("a/b/c", 8) == b"ij"
    assert objects.read("a/b/c", 2, 3) == b"cde"
    assert objects.read("a/b/c", 8, 100) == b"ij"
    assert [(one.name, one.size) for one in objects.list("a")] == [("a/b/c", 10)]
    objects.remove(["a/b/c", "a/none"])
    assert list(objects.list("a")) == []
    with pytest.raises(MissingObjectError):
        objects.read("a/b/c")
    assert objects.versioned("a/b/c") is None


def test_of_two_writers_one_wins(objects: Objects) -> None:
    first = objects.create("r", b"1")
    with pytest.raises(StoreConflictError):
        objects.create("r", b"2")
    second = objects.replace("r", b"2", first)
    with pytest.raises(StoreConflictError):
        objects.replace("r", b"3", first)
    assert objects.versioned("r") == (b"2", second)
    objects.remove(["r"])
    with pytest.raises(StoreConflictError):
        objects.replace("r", b"3", second)
    assert objects.versioned("r") is None


def test_of_many_writers_at_once_one_wins(objects: Objects) -> None:
    tag = objects.create("r", b"start")
    won: list[int] = []

    def write(number: int) -> None:
        try:
            objects.replace("r", str(number).encode(), tag)
        except StoreConflictError:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = objects.versioned("r")
    assert found is not None
    assert [str(number).encode() for number in won] == [found.data]


def test_a_store_is_written_collected_and_read(objects: Objects) -> None:
    store = Store(objects=objects, key=StoreKey.new(), grace_s=-10)
    data = noise(1, 5000)
    put(store, "a", data)
    put(store, "b", data[: 4096 * 50])
    assert get(store, "a") == data
    erase(store, "a")
    Collector(store=store).collect()
    assert Collector(store=store).collect().removed
    assert get(store, "b") == data[: 4096 * 50]


@pytest.mark.parametrize("name", ["", "A", "a/../b", "/a", "a//b", "a/", ".a", "a" * 600])
def test_no_object_has_a_name_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot be called"):
        DirectoryObjects(tmp_path).put(name, b"")


def test_what_a_killed_writer_left_in_a_directory_is_no_object(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    objects.put("a/b", b"x")
    (tmp_path / "a" / ".new-left").write_bytes(b"half")
    assert [one.name for one in objects.list("a")] == ["a/b"]


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceError):
        objects.put("a", b"x")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", "/tmp/x", "ftp://host/x", "s3://", "http://host/x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpecError, match="no address"):
        RemoteObjects(url)


def test_no_credentials_are_shown() -> None:
    assert RemoteObjects("s3://user:word@bucket/a/", region="x").place == "s3://bucket/a"


def test_a_store_that_is_not_there_is_told() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        objects = S3(f"http://127.0.0.1:{unused.getsockname()[1]}").objects("x", retries=0)
        with pytest.raises(StoreError, match="s3://bucket/x") as caught:
            objects.read("a")
    assert caught.value.retryable


def test_answers_that_are_cut_late_or_failures_do_no_harm(s3: S3) -> None:
    with s3.disturbed() as disturbed:
        store = Store(objects=disturbed.objects("disturbed"), key=StoreKey.new())
        data = noise(2, 6000)
        put(store, "a", data)
        assert get(store, "a") == data
        assert get(Store(objects=store.objects, key=store.key), "a") == data
    assert disturbed.cuts
    assert disturbed.failures
