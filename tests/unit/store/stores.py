"""Stores for tests, and a place that fails when it is told to."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from atoll.errors import StoreConflictError, StoreError
from atoll.store import (
    DirectoryObjects,
    MissingObjectError,
    Objects,
    Record,
    Store,
    StoredObject,
    StoreKey,
    Versioned,
)


class MemoryObjects(Objects):
    """Objects in memory. ``left`` writes and removals succeed, the next ones fail as at a power cut.

    ``meanwhile`` is done in the middle of other calls, after so many of them.
    """

    def __init__(self) -> None:
        self.meanwhile: tuple[int, Callable[[], object]] | None = None
        self.objects: dict[str, bytes] = {}
        self.left: int | None = None
        self.reads: list[tuple[str, int, int | None]] = []
        self._lock = Lock()

    @property
    def place(self) -> str:
        return "memory"

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        self._look()
        self.reads.append((name, start, size))
        try:
            data = self.objects[name]
        except KeyError:
            raise MissingObjectError(name) from None
        return data[start:] if size is None else data[start : start + size]

    def versioned(self, name: str) -> Versioned | None:
        self._look()
        data = self.objects.get(name)
        return None if data is None else Versioned(data, str(hash(data)))

    def put(self, name: str, data: bytes) -> None:
        self._step()
        self.objects[name] = data

    def create(self, name: str, data: bytes) -> str:
        self._step()
        if name in self.objects:
            raise StoreConflictError(f"{name} is there")
        self.objects[name] = data
        return str(hash(data))

    def replace(self, name: str, data: bytes, tag: str) -> str:
        self._step()
        if name not in self.objects or str(hash(self.objects[name])) != tag:
            raise StoreConflictError(f"{name} was changed")
        self.objects[name] = data
        return str(hash(data))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._step()
            self.objects.pop(name, None)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._look()
        for name, data in list(self.objects.items()):
            if name.startswith(f"{prefix}/"):
                yield StoredObject(name, len(data))

    def _look(self) -> None:
        with self._lock:
            if self.meanwhile is None:
                return
            left, action = self.meanwhile
            self.meanwhile = (left - 1, action) if left else None
        if not left:
            action()

    def _step(self) -> None:
        self._look()
        if self.left is not None:
            if self.left <= 0:
                raise StoreError("the power is cut")
            self.left -= 1


class Clock:
    """The time in Unix seconds."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def store_in_directory() -> Iterator[tuple[Store, Path]]:
    """A store in a directory of its own, with that directory."""
    with tempfile.TemporaryDirectory(prefix="store-") as made:
        store = Store(
            objects=DirectoryObjects(Path(made) / "objects"),
            key=StoreKey.new(),
            catalog_path=Path(made) / "catalog.db",
        )
        try:
            yield store, Path(made)
        finally:
            store.close()


def put(store: Store, record_id: str, data: bytes, *, pages: bool = True) -> int:
    """Store bytes under a name, as memory or as a file. Returns the bytes that this took."""
    with tempfile.TemporaryFile() as file, store.writing() as writing:
        file.write(data)
        file.flush()
        content = writing.writer.write_file(file.fileno(), len(data), pages=pages)
        record = Record(kind="snapshot", record_id=record_id, changed_at=store.now_s(), size=len(data))
        writing.commit(record, {"memory": content}, store.records.find("snapshot", record_id))
        return writing.writer.stored_bytes


def get(store: Store, record_id: str) -> bytes:
    """Return the bytes stored under a name."""
    found = store.records.find("snapshot", record_id)
    assert found is not None
    with store.reading() as reader, tempfile.TemporaryFile() as file:
        reader.write_file(store.manifest(found.record, reader).contents["memory"], file.fileno())
        file.seek(0)
        return file.read()


def noise(seed: int, pages: int) -> bytes:
    """Pages that nothing compresses, all different."""
    return random.Random(seed).randbytes(4096 * pages)


def erase(store: Store, record_id: str) -> None:
    """Erase what is stored under a name, if it is."""
    found = store.records.find("snapshot", record_id)
    if found is not None:
        store.records.erase(found, store.now_s())
