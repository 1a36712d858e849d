"""Records: what is stored, and who owns it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from atoll.errors import DamagedError, InternalError, StoreConflictError
from atoll.store.contents import Content
from atoll.store.keys import StoreKey
from atoll.store.objects import Objects
from atoll.types.internal import msgpack_reader

FORMAT = 1
PART = "[a-z0-9][a-z0-9-]{0,99}"
"""A kind or an id, as a pattern."""
_PART = re.compile(PART)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A thing in the store: a sandbox, a snapshot, a layer.

    Attributes:
        kind: What it is.
        record_id: Its id, one of its kind.
        epoch: Counts its owners. Whoever finds a higher one than its own has lost it.
        owner: The node that owns it; empty for none, so that whoever takes it raises the epoch.
        changed_at: When this record was written, in Unix seconds.
        manifest: Its list of contents, itself a content.
        size: The bytes that its contents have, before anything is shared or compressed.
        facts: What its kind adds, as MessagePack.
        is_erased: It is about to be removed, and counts as missing.
    """

    kind: str
    record_id: str
    changed_at: float
    epoch: int = 0
    owner: str = ""
    manifest: Content | None = None
    size: int = 0
    facts: bytes = b""
    is_erased: bool = False
    format: int = FORMAT


class FoundRecord(NamedTuple):
    """A record, and the tag that names exactly this state of it."""

    record: Record
    tag: str


_read = msgpack_reader(Record)


class Records:
    """The records of one owner.

    Args:
        objects: The store.
        key: The owner's key.
    """

    def __init__(self, objects: Objects, key: StoreKey) -> None:
        self._objects = objects
        self._key = key

    def find(self, kind: str, record_id: str) -> FoundRecord | None:
        """Return a record as it is now; None if there is none.

        Raises:
            DamagedError: It is not as it was written.
        """
        found = self._find(self._name(kind, record_id))
        return None if found is None or found.record.is_erased else found

    def _find(self, name: str) -> FoundRecord | None:
        found = self._objects.versioned(name)
        return None if found is None else FoundRecord(self._opened(name, found.data), found.tag)

    def create(self, record: Record) -> FoundRecord:
        """Write a new record. All that it names is in the store already.

        Raises:
            StoreConflictError: There is one already.
        """
        name = self._name(record.kind, record.record_id)
        sealed = self._sealed(name, record)
        try:
            return FoundRecord(record, self._objects.create(name, sealed))
        except StoreConflictError:
            before = self._find(name)
            if before is None or not before.record.is_erased:
                raise
            return FoundRecord(record, self._objects.replace(name, sealed, before.tag))

    def replace(self, found: FoundRecord, record: Record) -> FoundRecord:
        """Write a record anew, if nobody has changed it since it was found.

        Raises:
            StoreConflictError: Somebody has, or the epoch would fall.
        """
        old = found.record
        if (old.kind, old.record_id) != (record.kind, record.record_id):
            raise InternalError("a record replaces only itself")
        if record.epoch < old.epoch:
            raise StoreConflictError(f"{old.kind} {old.record_id} has the epoch {old.epoch} in the store")
        name = self._name(record.kind, record.record_id)
        return FoundRecord(record, self._objects.replace(name, self._sealed(name, record), found.tag))

    def erase(self, found: FoundRecord, at_s: float) -> None:
        """Remove a record, if nobody has changed it since it was found.

        What it alone has named is collected later. Until then a record without anything stays in its place:
        no store removes on a condition, and somebody else may own it by now.

        Args:
            found: The record.
            at_s: Now, in Unix seconds.

        Raises:
            StoreConflictError: Somebody has changed it.
        """
        old = found.record
        self.replace(
            found,
            Record(kind=old.kind, record_id=old.record_id, changed_at=at_s, epoch=old.epoch, is_erased=True),
        )

    def sweep(self, record: Record) -> None:
        """Remove what an erased record has left."""
        self._objects.remove([self._name(record.kind, record.record_id)])

    def list(self, kind: str | None = None) -> Iterator[Record]:
        """Yield all records, or those of a kind.

        Raises:
            DamagedError: One is not as it was written.
        """
        return (record for record in self.all(kind) if not record.is_erased)

    def all(self, kind: str | None = None) -> Iterator[Record]:
        """Do the work of ``list``, and yield the erased ones too."""
        for name in self.names(kind):
            found = self._find(name)
            if found is not None:
                yield found.record

    def names(self, kind: str | None = None) -> tuple[str, ...]:
        """Return the names of the objects of all records, or those of a kind."""
        where = f"{self._key.domain}/records" + (f"/{_checked(kind)}" if kind else "")
        depth = 4  # domain, records, kind, id
        names = (one.name for one in self._objects.list(where))
        return tuple(name for name in names if name.count("/") == depth - 1)

    def _name(self, kind: str, record_id: str) -> str:
        return f"{self._key.domain}/records/{_checked(kind)}/{_checked(record_id)}"

    def _sealed(self, name: str, record: Record) -> bytes:
        return self._key.seal(name, msgspec.msgpack.encode(record))

    def _opened(self, name: str, data: bytes) -> Record:
        try:
            record: Record = _read(self._key.open(name, data))
        except msgspec.DecodeError:
            raise DamagedError(f"the record {name} of the store cannot be read") from None
        if name != f"{self._key.domain}/records/{record.kind}/{record.record_id}":
            raise DamagedError(f"the record {name} of the store is of {record.kind} {record.record_id!r}")
        if record.format != FORMAT:
            raise DamagedError(
                f"the record {name} has the format {record.format}, and this atoll reads {FORMAT}",
                hint="read it with the atoll that wrote it, or a newer one",
            )
        return record


def _checked(part: str) -> str:
    if not _PART.fullmatch(part):
        raise InternalError(f"no record can be called {part[:100]!r}")
    return part
