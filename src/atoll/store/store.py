"""The part of a store that belongs to one owner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from atoll.errors import DamagedError, InternalError, StoreError
from atoll.store.catalog import Catalog
from atoll.store.contents import Content
from atoll.store.frames import pack_of
from atoll.store.keys import ID_BYTES, StoreKey
from atoll.store.objects import Objects
from atoll.store.reader import Reader
from atoll.store.records import FoundRecord, Record, Records
from atoll.store.writer import Writer
from atoll.types.internal import msgpack_reader

GRACE_S = 24 * 3600.0
"""How long a pack stays that nothing needs any more: as long as a reader or a writer may still go by it."""

Told = Callable[[int], None]


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a record by name, and the ids of all frames that these need, one after the other."""

    contents: dict[str, Content]
    frames: bytes


_read = msgpack_reader(Manifest)


def _untold(_: int) -> None:
    """Tell nobody."""


@dataclass(kw_only=True, eq=False, repr=False)
class Store:
    """Stores and returns what one owner has put away. Its methods block.

    Args:
        objects: The place of the objects, which owners may share.
        key: The owner's key.
        catalog_path: The file of this home's ``Catalog``; None keeps it in memory.
        grace_s: See ``GRACE_S``. The same everywhere.
        now_s: The time in Unix seconds.
    """

    objects: Objects
    key: StoreKey
    catalog_path: Path | None = None
    grace_s: float = GRACE_S
    now_s: Callable[[], float] = time.time
    catalog: Catalog = field(init=False)
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = Catalog(self.catalog_path, self.objects, self.key)
        self.records = Records(self.objects, self.key)

    def close(self) -> None:
        """Close its files."""
        self.catalog.close()

    def writing(self, told: Told = _untold) -> Writing:
        """Begin to store contents, for ``Writing.commit``.

        Args:
            told: Called with the number of bytes after each part that was read. What it raises ends the work.

        Raises:
            StoreError: The store cannot be reached.
        """
        began_s = self.now_s()
        self.catalog.refresh()
        return Writing(store=self, writer=Writer(self.objects, self.key, self.catalog, told), began_s=began_s)

    def reading(self, told: Told = _untold) -> Reader:
        """Return a reader of contents. ``told`` is as for ``writing``."""
        return Reader(self.objects, self.key, self.catalog, told)

    def manifest(self, record: Record, reader: Reader | None = None) -> Manifest:
        """Return the contents of a record.

        Raises:
            DamagedError: They are missing, or not as they were written.
        """
        if record.manifest is None:
            return Manifest({}, b"")
        if reader is None:
            with self.reading() as reader:
                return self.manifest(record, reader)
        try:
            found: Manifest = _read(reader.read(record.manifest))
        except msgspec.DecodeError:
            raise DamagedError(f"the contents of {record.kind} {record.record_id} cannot be read") from None
        if len(found.frames) % ID_BYTES:
            raise DamagedError(f"the contents of {record.kind} {record.record_id} are cut")
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class Writing:
    """Contents on their way into the store. Use it inside ``with``."""

    store: Store
    writer: Writer
    began_s: float

    def __enter__(self) -> Writing:
        self.writer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.__exit__(None, None, None)

    def commit(
        self, record: Record, contents: Mapping[str, Content], before: FoundRecord | None = None
    ) -> FoundRecord:
        """Write the record of contents, once all of them are in the store.

        A reader sees the record before, or this one with all that it needs.

        Args:
            record: The record, without its manifest.
            contents: What was written, by name.
            before: The record that this one replaces; None for a new one.

        Raises:
            StoreConflictError: Somebody else has written the record meanwhile.
            StoreError: The store cannot be reached, or a part that it had is gone. Written again, it goes
                fast.
        """
        if not self.writer.frames.issuperset(each for one in contents.values() for each in one.frame_ids()):
            raise InternalError("a record has contents of another writer")
        frames = b"".join(sorted(self.writer.frames))
        manifest = self.writer.write(msgspec.msgpack.encode(Manifest(dict(contents), frames)))
        self.writer.finish()
        self._check_kept()
        record = msgspec.structs.replace(record, manifest=manifest)
        if before is None:
            return self.store.records.create(record)
        return self.store.records.replace(before, record)

    def _check_kept(self) -> None:
        """Check that all packs are there, and that none may be collected before the record counts."""
        store, used = self.store, self.writer.used_packs
        listed = {pack_of(one.name) for one in store.objects.list(f"{store.key.domain}/packs")}
        if used <= listed:
            if store.now_s() - self.began_s < store.grace_s / 2:
                return
            store.catalog.refresh()
            packs = store.catalog.packs()
            if all(packs.get(pack, 0.0) is None for pack in used):
                return
        for pack in used - listed:
            store.catalog.lose(pack)
        raise StoreError(
            "writing to the store took so long that a part of it was collected", hint="do it again"
        )
