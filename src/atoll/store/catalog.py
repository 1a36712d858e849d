"""A home's copy of what an owner's part of a store has in it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.errors import DamagedError, StoreError
from atoll.store.catalog_file import CatalogFile, batches
from atoll.store.frames import FramePlace, PackIndex, places_of
from atoll.store.keys import ID_BYTES, StoreKey
from atoll.store.objects import MissingObjectError, Objects
from atoll.types.internal import msgpack_reader

_LISTS_MOST = 10
_MARK = re.compile(r"([0-9a-f]{32})-([0-9]{1,12})")
_NONE: Mapping[bytes, float] = {}
_read_index = msgpack_reader(list[PackIndex])


class KnownPiece(NamedTuple):
    """Where a piece is: its frame, the first byte there, and its length in bytes; and the pack of the frame."""

    frame: bytes
    start: int
    length: int
    pack: bytes


class Catalog:
    """Knows the frames of an owner, and their pieces as far as this home has stored them.

    It is a cache. If its file is lost, frames are read again from the store, and equal pieces that lie in
    different frames are stored once more. Any number of threads may use it.

    Args:
        path: Its file. None keeps it in memory.
        objects: The store.
        key: The owner's key.

    Attributes:
        file: Its tables.
    """

    def __init__(self, path: Path | None, objects: Objects, key: StoreKey) -> None:
        self._objects = objects
        self._key = key
        self.file = CatalogFile(path)

    def close(self) -> None:
        """Close its file."""
        self.file.close()

    def refresh(self) -> None:
        """Learn what others have stored, removed and condemned since.

        Raises:
            StoreError: The store cannot be reached.
            DamagedError: An index is not as it was written.
        """
        with self.file.alone():
            # The marks first: a mark goes long after its pack has left the indexes, never before.
            condemned = condemned_packs(self._objects, self._key.domain)
            # An index that a writer of this home adds meanwhile is in none of these.
            known = set(self.indexes())
            there = self._learnt(known, condemned)
            with self.file.changing() as database:
                gone = known - there
                database.executemany("DELETE FROM indexes WHERE name = ?", ((each,) for each in gone))
                for (pack,) in self.file.all(
                    "SELECT pack FROM packs WHERE pack NOT IN (SELECT pack FROM indexes)"
                ):
                    _forget(database, pack)
                database.execute("UPDATE packs SET condemned = NULL WHERE condemned IS NOT NULL")
                database.executemany(
                    "UPDATE packs SET condemned = ? WHERE pack = ?",
                    [(at_s, pack) for pack, at_s in condemned.items()],
                )
                database.execute("UPDATE packs SET condemned = 0 WHERE pack IN (SELECT pack FROM lost)")

    def lose(self, pack: bytes) -> None:
        """Note that a pack is not there although an index names it: nothing of it may be relied on."""
        with self.file.changing() as database:
            database.execute("INSERT OR IGNORE INTO lost VALUES (?)", (pack,))
            database.execute("UPDATE packs SET condemned = 0 WHERE pack = ?", (pack,))

    def find(self, packs: Iterable[bytes]) -> None:
        """Note that packs are there, whatever was noted before."""
        with self.file.changing() as database:
            database.executemany("DELETE FROM lost WHERE pack = ?", ((pack,) for pack in packs))

    def _learnt(self, known: set[str], condemned: Mapping[bytes, float]) -> Set[str]:
        """Read the indexes that are new, add them to the known ones, and return the names of all."""
        left = _LISTS_MOST
        while True:
            there = {one.name for one in self._objects.list(f"{self._key.domain}/indexes")}
            try:
                for name in there - known:
                    self.add(name, self.read_index(name), condemned)
                    known.add(name)
            except MissingObjectError as error:
                left -= 1
                if not left:
                    raise StoreError(f"the store lists {error.args[0]}, and does not have it") from None
                continue  # somebody has put another one in its place
            return there

    def add(self, name: str, packs: Iterable[PackIndex], condemned: Mapping[bytes, float] = _NONE) -> None:
        """Note an index of this name, with its packs and their frames, and which of them are condemned."""
        with self.file.changing() as database:
            for each in packs:
                database.execute("INSERT OR REPLACE INTO indexes VALUES (?, ?)", (name, each.pack))
                mark = condemned.get(each.pack)
                database.execute("INSERT OR IGNORE INTO packs VALUES (?, ?)", (each.pack, mark))
                database.executemany(
                    "INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        (frame, each.pack, place.number, place.start, place.size, place.length)
                        for frame, place in places_of(each.pack, each.entries).items()
                    ),
                )

    def read_index(self, name: str) -> list[PackIndex]:
        """Read an index from the store.

        Raises:
            MissingObjectError: There is none of this name.
            DamagedError: It is not as it was written, or its numbers cannot be.
        """
        data = self._key.open(name, self._objects.read(name))
        try:
            found: list[PackIndex] = _read_index(data)
            for each in found:
                each.check()
        except (msgspec.DecodeError, ValueError):
            raise DamagedError(f"the index {name} of the store cannot be read") from None
        return found

    def indexes(self) -> dict[str, set[bytes]]:
        """Return the names of all known indexes, with their packs."""
        found: dict[str, set[bytes]] = {}
        for name, pack in self.file.all("SELECT name, pack FROM indexes"):
            found.setdefault(name, set()).add(pack)
        return found

    def add_pieces(self, pieces: Iterable[tuple[bytes, bytes, int, int]]) -> None:
        """Note where pieces are: piece, frame, first byte, length in bytes."""
        with self.file.changing() as database:
            database.executemany("INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?)", pieces)

    def usable_pack(self, frame: bytes) -> bytes | None:
        """Return a pack with this frame that is not condemned; None if there is none."""
        rows = self.file.all(
            "SELECT pack FROM frames JOIN packs USING (pack) WHERE frame = ? AND condemned IS NULL", (frame,)
        )
        return rows[0][0] if rows else None

    def places(self, frames: Iterable[bytes], but: Set[bytes] = frozenset()) -> dict[bytes, FramePlace]:
        """Return where frames are, as far as that is known. A place that is not condemned is preferred.

        Args:
            frames: The frames.
            but: Packs in which they are not to be looked for.
        """
        found: dict[bytes, FramePlace] = {}
        for some, marks in batches(frames):
            rows = self.file.all(
                "SELECT frame, frames.pack, number, start, size, length FROM frames JOIN packs USING (pack)"
                f" WHERE frame IN ({marks}) ORDER BY condemned IS NULL",
                some,
            )
            for frame, *place in rows:
                if place[0] not in but:
                    found[frame] = FramePlace(*place)
        return found

    def pieces(self, pieces: Iterable[bytes]) -> dict[bytes, KnownPiece]:
        """Return where pieces are that can be used again: none of a condemned pack."""
        found: dict[bytes, KnownPiece] = {}
        for some, marks in batches(pieces):
            rows = self.file.all(
                "SELECT piece, pieces.frame, pieces.start, pieces.length, frames.pack FROM pieces"
                " JOIN frames USING (frame) JOIN packs USING (pack)"
                f" WHERE piece IN ({marks}) AND condemned IS NULL",
                some,
            )
            for piece, *where in rows:
                found[piece] = KnownPiece(*where)
        return found

    def packs(self) -> Mapping[bytes, float | None]:
        """Return all known packs, with the time in Unix seconds at which they were condemned."""
        return dict(self.file.all("SELECT pack, condemned FROM packs"))

    def forget_lost_pieces(self) -> None:
        """Forget the pieces of frames that are gone."""
        with self.file.changing() as database:
            database.execute("DELETE FROM pieces WHERE frame NOT IN (SELECT frame FROM frames)")

    def forget(self, pack: bytes) -> None:
        """Forget a pack that was removed."""
        with self.file.changing() as database:
            _forget(database, pack)

    def forget_index(self, name: str) -> None:
        """Forget an index that was removed."""
        with self.file.changing() as database:
            database.execute("DELETE FROM indexes WHERE name = ?", (name,))


def _forget(database: sqlite3.Connection, pack: bytes) -> None:
    for table in ("packs", "frames", "indexes"):
        database.execute(f"DELETE FROM {table} WHERE pack = ?", (pack,))  # noqa: S608 - of three names


def put_index(objects: Objects, key: StoreKey, packs: Sequence[PackIndex]) -> str:
    """Write an index of packs that are in the store, and return its name."""
    name = f"{key.domain}/indexes/{os.urandom(ID_BYTES).hex()}"
    objects.put(name, key.seal(name, msgspec.msgpack.encode(packs)))
    return name


def condemned_name(domain: str, pack: bytes, at_s: float) -> str:
    """Return the name of the mark that a pack is to be removed when the grace is over."""
    return f"{domain}/condemned/{pack.hex()}-{int(at_s)}"


def condemned_packs(objects: Objects, domain: str) -> dict[bytes, float]:
    """Return the condemned packs, with the times in Unix seconds."""
    found: dict[bytes, float] = {}
    for one in objects.list(f"{domain}/condemned"):
        mark = _MARK.fullmatch(one.name.rpartition("/")[2])
        if mark is not None:
            pack, at_s = bytes.fromhex(mark[1]), float(mark[2])
            found[pack] = min(at_s, found.get(pack, at_s))
    return found
