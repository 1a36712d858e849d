"""What is stored comes back, once, and only to its owner."""

from __future__ import annotations

import os
import random
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.store.stores import Clock, MemoryObjects, get, noise, put, store_in_directory

from atoll.errors import DamagedError, InvalidSpecError, StoreConflictError
from atoll.store import Collector, Content, FoundRecord, Record, Store, StoreKey, Writing, stored_bytes

PAGE = 4096


def in_memory(objects: MemoryObjects | None = None, key: StoreKey | None = None) -> Store:
    return Store(objects=objects or MemoryObjects(), key=key or StoreKey.new())


@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["noise", "zeros", "again", "text"]), st.integers(1, 40_000)), max_size=12
    ),
    pages=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_file_comes_back_byte_for_byte(parts: list[tuple[str, int]], pages: bool) -> None:
    random_bytes = random.Random(1)
    data = b""
    for kind, length in parts:
        if kind == "noise":
            data += random_bytes.randbytes(length)
        elif kind == "again":
            data += data[:length]
        else:
            data += (b"\0" if kind == "zeros" else b"tell me more ")[: max(1, length)] * (length // 13 + 1)
    store = in_memory()
    put(store, "a", data, pages=pages)
    assert get(store, "a") == data


def test_a_second_time_takes_only_what_is_new_wherever_it_lies() -> None:
    with store_in_directory() as (store, _):
        memory = noise(1, 2000)
        first = put(store, "first", memory)
        assert len(memory) < first < 1.01 * len(memory)
        # A page more at the front shifts all the others.
        second = put(store, "second", noise(2, 1) + memory)
        assert second < 3 * PAGE + 65536
        assert get(store, "first") == memory
        assert get(store, "second") == noise(2, 1) + memory


def test_zeros_take_nothing_and_come_back_as_holes() -> None:
    with store_in_directory() as (store, directory):
        with open(directory / "sparse", "w+b") as file:
            os.truncate(file.fileno(), 1 << 30)
            os.pwrite(file.fileno(), b"end", (1 << 30) - 3)
            with store.writing() as writing:
                content = writing.writer.write_file(file.fileno(), 1 << 30)
                writing.commit(Record(kind="snapshot", record_id="a", changed_at=0.0), {"memory": content})
        assert stored_bytes(store) < 5000
        with open(directory / "back", "w+b") as back, store.reading() as reader:
            reader.write_file(content, back.fileno())
            assert os.fstat(back.fileno()).st_size == 1 << 30
            assert os.fstat(back.fileno()).st_blocks * 512 <= 1 << 20
            assert os.pread(back.fileno(), 4, (1 << 30) - 4) == b"\0end"


def found_in(store: Store, record_id: str) -> FoundRecord:
    found = store.records.find("sandbox", record_id)
    assert found is not None
    return found


def test_few_ranges_are_read_for_much() -> None:
    objects = MemoryObjects()
    store = in_memory(objects)
    put(store, "a", noise(1, 4096))
    objects.reads.clear()
    assert get(store, "a") == noise(1, 4096)
    packs = [size for name, _, size in objects.reads if "/packs/" in name]
    assert len(packs) < 10
    assert all(size is not None and size <= 4 << 20 for size in packs)


def test_a_fresh_home_with_the_key_has_all_and_finds_equal_files_again() -> None:
    objects, key = MemoryObjects(), StoreKey.new()
    data = noise(1, 600)
    put(in_memory(objects, key), "a", data, pages=False)
    fresh = in_memory(objects, StoreKey.from_text(key.text()))
    assert [record.record_id for record in fresh.records.list()] == ["a"]
    assert get(fresh, "a") == data
    assert put(in_memory(objects, key), "b", data, pages=False) < 2000


def test_owners_share_nothing_that_anybody_could_see() -> None:
    objects = MemoryObjects()
    one, other = in_memory(objects), in_memory(objects)
    secret = noise(7, 300)
    first = put(one, "a", secret)
    second = put(other, "a", secret)
    assert abs(first - second) < 1000
    for name, data in objects.objects.items():
        assert secret[:64] not in data
        assert name.startswith((one.key.domain, other.key.domain))
    assert one.key.domain != other.key.domain
    assert one.key.id_of(b"x") != other.key.id_of(b"x")


def test_another_key_opens_nothing() -> None:
    objects = MemoryObjects()
    mine = in_memory(objects)
    put(mine, "a", b"mine")
    stranger = in_memory(objects)
    for name in list(objects.objects):
        objects.objects[name.replace(mine.key.domain, stranger.key.domain)] = objects.objects[name]
    with pytest.raises(DamagedError):
        stranger.records.find("snapshot", "a")


def test_what_is_not_committed_is_used_by_the_next_try() -> None:
    objects = MemoryObjects()
    store = in_memory(objects)
    data = noise(3, 12_000)
    objects.left = 3  # one pack with its index, and one without
    with pytest.raises(Exception, match="power is cut"):
        put(store, "a", data)
    objects.left = None
    assert store.records.find("snapshot", "a") is None
    assert put(store, "a", data) < len(data) - (10 << 20)
    assert get(store, "a") == data


def test_a_record_is_changed_by_one_of_two() -> None:
    with store_in_directory() as (store, _):
        record = Record(kind="sandbox", record_id="a", changed_at=1.0)
        first = store.records.create(record)
        with pytest.raises(StoreConflictError):
            store.records.create(record)
        second = store.records.replace(first, Record(kind="sandbox", record_id="a", changed_at=2.0, epoch=1))
        with pytest.raises(StoreConflictError):
            store.records.replace(first, Record(kind="sandbox", record_id="a", changed_at=3.0, epoch=2))
        with pytest.raises(StoreConflictError, match="epoch 1"):
            store.records.replace(second, Record(kind="sandbox", record_id="a", changed_at=3.0))
        assert store.records.find("sandbox", "a") == second
        store.records.erase(found_in(store, "a"), store.now_s())
        assert list(store.records.list()) == []


def test_a_key_with_a_slip_of_the_pen_is_refused() -> None:
    key = StoreKey.new()
    assert StoreKey.from_text(f" {key.text().upper()}\n").raw == key.raw
    for wrong in (
        "",
        key.text()[:-1],
        key.text()[:-1] + ("a" if key.text()[-1] != "a" else "b"),
        "atoll-store-1-é",
    ):
        with pytest.raises(InvalidSpecError):
            StoreKey.from_text(wrong)
    assert key.text() not in repr(key)


@pytest.mark.parametrize(
    "content",
    [
        Content(10, bytes(16), (0, 0, 9)),
        Content(10, bytes(16), (1, 0, 10)),
        Content(10, bytes(16), (-2, 0, 10)),
        Content(10, bytes(16), (0, -1, 10)),
        Content(10, bytes(16), (0, 0, 11, 0, 0, -1)),
        Content(10, bytes(15), (0, 0, 10)),
        Content(10, bytes(16), (0, 0)),
    ],
)
def test_a_content_that_contradicts_itself_is_refused(content: Content) -> None:
    with pytest.raises(DamagedError):
        list(content.parts())


def test_a_run_past_its_frame_is_refused() -> None:
    store = in_memory()
    with store.writing() as writing:
        content = writing.writer.write(b"x" * 100)
        writing.writer.finish()
    with store.reading() as reader, pytest.raises(DamagedError, match="after its frame"):
        reader.read(Content(101, content.frames, (0, 0, 101)))


def test_a_file_that_becomes_shorter_is_an_error() -> None:
    store = in_memory()
    with tempfile.TemporaryFile() as file, store.writing() as writing:
        file.write(b"x" * 10_000)
        file.flush()
        with pytest.raises(Exception, match="shorter"):
            writing.writer.write_file(file.fileno(), 20_000)


def test_what_never_changes_is_read_once() -> None:
    objects, clock = MemoryObjects(), Clock()
    store = Store(objects=objects, key=StoreKey.new(), grace_s=10, now_s=clock)
    data, reads = noise(5, 100), 0

    def layer(writing: Writing) -> Content:
        nonlocal reads
        reads += 1
        return writing.writer.write(data)

    for name in ("a", "b"):
        with store.writing() as writing:
            content = writing.writer.once("layer 1", lambda: layer(writing))  # noqa: B023 - called at once
            assert set(content.frame_ids()) <= writing.writer.frames
            record = Record(kind="sandbox", record_id=name, changed_at=0.0)
            writing.commit(record, {"layer": content}, store.records.find("sandbox", name))
    assert reads == 1
    store.records.erase(found_in(store, "a"), store.now_s())
    Collector(store=store, waste=0).collect()
    store.records.erase(found_in(store, "b"), store.now_s())
    Collector(store=store, waste=0).collect()
    # Nothing of it may be relied on any more.
    with store.writing() as writing:
        content = writing.writer.once("layer 1", lambda: layer(writing))
        assert reads == 2
        clock.now_s += 4
        writing.commit(Record(kind="sandbox", record_id="c", changed_at=0.0), {"layer": content})
    clock.now_s += 20
    Collector(store=store, waste=0).collect()
    Collector(store=store, waste=0).collect()
    with store.reading() as reader:
        assert reader.read(content) == data


def test_a_name_whose_writing_failed_is_written_again() -> None:
    store = in_memory()

    def fails() -> Content:
        raise OSError("no disk")

    with store.writing() as writing, pytest.raises(OSError, match="no disk"):
        writing.writer.once("layer", fails)
    with store.writing() as writing:
        content = writing.writer.once("layer", lambda: writing.writer.write(b"data"))
        writing.writer.finish()
    with store.reading() as reader:
        assert reader.read(content) == b"data"
