"""A home's copy of what an owner's part of a store has in it."""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.errors import DamagedError
from atoll.store.contents import Content
from atoll.store.frames import FrameEntry, FramePlace, PackIndex, places_of
from atoll.store.keys import ID_BYTES, StoreKey
from atoll.store.objects import MissingObjectError, Objects
from atoll.types.internal import msgpack_reader

_SCHEMA = """
CREATE TABLE IF NOT EXISTS packs (pack BLOB PRIMARY KEY, condemned REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS frames (
    frame BLOB, pack BLOB, number INTEGER, start INTEGER, size INTEGER, length INTEGER,
    PRIMARY KEY (frame, pack)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS frames_of_packs ON frames (pack);
CREATE TABLE IF NOT EXISTS indexes (name TEXT, pack BLOB, PRIMARY KEY (name, pack)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pieces (
    piece BLOB PRIMARY KEY, frame BLOB, start INTEGER, length INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS named (name TEXT PRIMARY KEY, content BLOB, frames BLOB) WITHOUT ROWID;
"""
# Each needed frame in one pack: of several, one that is not condemned.
_CHOSEN = """
SELECT frame, pack, size FROM (
    SELECT frame, pack, size,
           row_number() OVER (PARTITION BY frame ORDER BY condemned IS NOT NULL, pack) AS place
    FROM live JOIN frames USING (frame) JOIN packs USING (pack)
) WHERE place = 1
"""
_AT_ONCE = 500
_read_index = msgpack_reader(list[PackIndex])
_read_content = msgpack_reader(Content)


class KnownPiece(NamedTuple):
    """Where a piece is: its frame, the first byte there, and its length in bytes; and the pack of the frame."""

    frame: bytes
    start: int
    length: int
    pack: bytes


class NamedContent(NamedTuple):
    """A content that was stored under a name, with all frames that it needs, and the packs of these."""

    content: Content
    frames: set[bytes]
    packs: set[bytes]


class Catalog:
    """Knows the frames of an owner, and their pieces as far as this home has stored them.

    It is a cache. If its file is lost, frames are read again from the store, and equal pieces that lie in
    different frames are stored once more. Any number of threads may use it.

    Args:
        path: Its file. None keeps it in memory.
        objects: The store.
        key: The owner's key.
    """

    def __init__(self, path: Path | None, objects: Objects, key: StoreKey) -> None:
        self._objects = objects
        self._key = key
        self._lock = threading.RLock()
        self._database = _open(path)

    def close(self) -> None:
        """Close its file."""
        with self._lock:
            self._database.close()

    def refresh(self) -> None:
        """Learn what others have stored, removed and condemned since.

        Raises:
            StoreError: The store cannot be reached.
            DamagedError: An index is not as it was written.
        """
        prefix = f"{self._key.domain}/indexes"
        known = self.indexes().keys()
        while True:
            there = {one.name for one in self._objects.list(prefix)}
            try:
                for name in there - known:
                    self.add(name, self._index(name))
            except MissingObjectError:
                known = self.indexes().keys()
                continue  # somebody has put another one in its place
            break
        condemned = condemned_packs(self._objects, self._key.domain)
        with self._lock, self._database:
            self._database.executemany(
                "DELETE FROM indexes WHERE name = ?", ((each,) for each in known - there)
            )
            for (pack,) in self._all("SELECT pack FROM packs WHERE pack NOT IN (SELECT pack FROM indexes)"):
                self._forget(pack)
            self._database.execute("UPDATE packs SET condemned = NULL WHERE condemned IS NOT NULL")
            self._database.executemany(
                "UPDATE packs SET condemned = ? WHERE pack = ?",
                [(at_s, pack) for pack, at_s in condemned.items()],
            )

    def add(self, name: str, packs: Iterable[PackIndex]) -> None:
        """Note an index of this name, with its packs and their frames."""
        with self._lock, self._database:
            for each in packs:
                self._database.execute("INSERT OR REPLACE INTO indexes VALUES (?, ?)", (name, each.pack))
                self._database.execute("INSERT OR IGNORE INTO packs VALUES (?, NULL)", (each.pack,))
                self._database.executemany(
                    "INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        (frame, each.pack, place.number, place.start, place.size, place.length)
                        for frame, place in places_of(each.pack, each.entries).items()
                    ),
                )

    def indexes(self) -> dict[str, set[bytes]]:
        """Return the names of all known indexes, with their packs."""
        found: dict[str, set[bytes]] = {}
        for name, pack in self._all("SELECT name, pack FROM indexes"):
            found.setdefault(name, set()).add(pack)
        return found

    def add_pieces(self, pieces: Iterable[tuple[bytes, bytes, int, int]]) -> None:
        """Note where pieces are: piece, frame, first byte, length in bytes."""
        with self._lock, self._database:
            self._database.executemany("INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?)", pieces)

    def usable_pack(self, frame: bytes) -> bytes | None:
        """Return a pack with this frame that is not condemned; None if there is none."""
        rows = self._all(
            "SELECT pack FROM frames JOIN packs USING (pack) WHERE frame = ? AND condemned IS NULL", (frame,)
        )
        return rows[0][0] if rows else None

    def places(self, frames: Iterable[bytes]) -> dict[bytes, FramePlace]:
        """Return where frames are, as far as that is known. A place that is not condemned is preferred."""
        found: dict[bytes, FramePlace] = {}
        for some, marks in _batches(frames):
            rows = self._all(
                "SELECT frame, frames.pack, number, start, size, length FROM frames JOIN packs USING (pack)"
                f" WHERE frame IN ({marks}) ORDER BY condemned IS NULL",
                some,
            )
            for frame, *place in rows:
                found[frame] = FramePlace(*place)
        return found

    def pieces(self, pieces: Iterable[bytes]) -> dict[bytes, KnownPiece]:
        """Return where pieces are that can be used again: none of a condemned pack."""
        found: dict[bytes, KnownPiece] = {}
        for some, marks in _batches(pieces):
            rows = self._all(
                "SELECT piece, pieces.frame, pieces.start, pieces.length, frames.pack FROM pieces"
                " JOIN frames USING (frame) JOIN packs USING (pack)"
                f" WHERE piece IN ({marks}) AND condemned IS NULL",
                some,
            )
            for piece, *where in rows:
                found[piece] = KnownPiece(*where)
        return found

    def name(self, name: str, content: Content, frames: Iterable[bytes]) -> None:
        """Note that a content is stored under a name, with all frames that it needs."""
        with self._lock, self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO named VALUES (?, ?, ?)",
                (name, msgspec.msgpack.encode(content), b"".join(sorted(frames))),
            )

    def named(self, name: str) -> NamedContent | None:
        """Return the content stored under a name; None if there is none, or a part of it is condemned or gone."""
        rows = self._all("SELECT content, frames FROM named WHERE name = ?", (name,))
        if not rows:
            return None
        frames = set(Content(0, rows[0][1]).frame_ids())
        packs: dict[bytes, bytes] = {}
        for some, marks in _batches(frames):
            packs |= self._all(
                "SELECT frame, pack FROM frames JOIN packs USING (pack)"
                f" WHERE frame IN ({marks}) AND condemned IS NULL",
                some,
            )
        if packs.keys() != frames:
            return None
        return NamedContent(_read_content(rows[0][0]), frames, set(packs.values()))

    def entries(self, pack: bytes) -> list[FrameEntry]:
        """Return the frames of a pack, in their order."""
        rows = self._all("SELECT frame, size, length FROM frames WHERE pack = ? ORDER BY number", (pack,))
        return [FrameEntry(*row) for row in rows]

    def packs(self) -> Mapping[bytes, float | None]:
        """Return all known packs, with the time in Unix seconds at which they were condemned."""
        return dict(self._all("SELECT pack, condemned FROM packs"))

    def condemned(self) -> dict[bytes, float]:
        """Return the packs that are condemned in the store now, known ones or not, with the times."""
        return condemned_packs(self._objects, self._key.domain)

    def set_live(self, frames: Iterable[bytes]) -> None:
        """Note the frames that are needed, for ``live_bytes`` and ``live_frames``."""
        with self._lock, self._database:
            self._database.execute(
                "CREATE TEMP TABLE IF NOT EXISTS live (frame BLOB PRIMARY KEY) WITHOUT ROWID"
            )
            self._database.execute("DELETE FROM live")
        for some, _ in _batches(frames):
            with self._lock, self._database:
                self._database.executemany(
                    "INSERT OR IGNORE INTO live VALUES (?)", ((each,) for each in some)
                )

    def live_bytes(self) -> dict[bytes, tuple[int, int]]:
        """Return the bytes of each pack, and of those the bytes that are needed of this very pack."""
        sizes = dict(self._all("SELECT pack, sum(size) FROM frames GROUP BY pack"))
        needed = dict(self._all(f"SELECT pack, sum(size) FROM ({_CHOSEN}) GROUP BY pack"))
        return {pack: (sizes.get(pack, 0), needed.get(pack, 0)) for pack in self.packs()}

    def live_frames(self, pack: bytes) -> list[bytes]:
        """Return the frames that are needed of this very pack."""
        return [frame for (frame,) in self._all(f"SELECT frame FROM ({_CHOSEN}) WHERE pack = ?", (pack,))]

    def forget_lost_pieces(self) -> None:
        """Forget the pieces of frames that are gone."""
        with self._lock, self._database:
            self._database.execute("DELETE FROM pieces WHERE frame NOT IN (SELECT frame FROM frames)")

    def forget(self, pack: bytes) -> None:
        """Forget a pack that was removed."""
        with self._lock, self._database:
            self._forget(pack)

    def forget_index(self, name: str) -> None:
        """Forget an index that was removed."""
        with self._lock, self._database:
            self._database.execute("DELETE FROM indexes WHERE name = ?", (name,))

    def _forget(self, pack: bytes) -> None:
        self._database.execute("DELETE FROM packs WHERE pack = ?", (pack,))
        self._database.execute("DELETE FROM frames WHERE pack = ?", (pack,))
        self._database.execute("DELETE FROM indexes WHERE pack = ?", (pack,))

    def _index(self, name: str) -> list[PackIndex]:
        data = self._key.open(name, self._objects.read(name))
        try:
            found: list[PackIndex] = _read_index(data)
        except msgspec.DecodeError:
            raise DamagedError(f"the index {name} of the store cannot be read") from None
        return found

    def _all(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            return self._database.execute(sql, values).fetchall()


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
        pack, _, at_s = one.name.rpartition("/")[2].partition("-")
        found[bytes.fromhex(pack)] = min(float(at_s), found.get(bytes.fromhex(pack), float(at_s)))
    return found


def _batches(ids: Iterable[bytes]) -> Iterator[tuple[list[bytes], str]]:
    """Yield some ids at a time, with as many question marks."""
    rest = iter(ids)
    while some := list(itertools.islice(rest, _AT_ONCE)):
        yield some, ",".join("?" * len(some))


def _open(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = sqlite3.connect(path or ":memory:", check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # after a power cut, a lost line of a cache is read again
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        database.close()
        if path is None or not path.exists():
            raise
        for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            each.unlink(missing_ok=True)
        return _open(path)
    return database
