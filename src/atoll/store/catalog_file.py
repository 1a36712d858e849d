"""The tables of a catalog."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from atoll.errors import NoSpaceError, StoreError
from atoll.host import locked

_SCHEMA = """
CREATE TABLE IF NOT EXISTS packs (pack BLOB PRIMARY KEY, condemned REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lost (pack BLOB PRIMARY KEY) WITHOUT ROWID;
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
_AT_ONCE = 500
_BUSY_S = 60.0


class CatalogFile:
    """An SQLite database that any number of threads may use. One that is damaged is made anew.

    Args:
        path: Its file. None keeps it in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.RLock()
        self._alone = threading.Lock()
        self._path = path
        with _told(path):
            self._database = _open(path)

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._database.close()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread or process is inside this at the same time."""
        with contextlib.ExitStack() as held:
            held.enter_context(self._alone)
            if self._path is not None:
                held.enter_context(locked(self._path.with_name(f"{self._path.name}.lock")))
            yield

    def all(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a query finds.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._lock, _told(self._path):
            return self._database.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """The database, for one transaction inside ``with``.

        Raises:
            NoSpaceError: The disk is full. Nothing has changed.
            StoreError: The database cannot be written. Nothing has changed.
        """
        with self._lock, _told(self._path):
            # at once: one that reads first could not write after another process has
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise


def batches(ids: Iterable[bytes]) -> Iterator[tuple[list[bytes], str]]:
    """Yield some ids at a time, with as many question marks."""
    rest = iter(ids)
    while some := list(itertools.islice(rest, _AT_ONCE)):
        yield some, ",".join("?" * len(some))


@contextlib.contextmanager
def _told(path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise NoSpaceError(f"the disk of {path} is full") from None
        raise StoreError(
            f"the catalog {path} of the store cannot be used: {error}", hint="try again"
        ) from None


def _open(path: Path | None) -> sqlite3.Connection:
    if path is None:
        return _prepared(":memory:")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return _prepared(str(path))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)
    return _prepared(str(path))


def _prepared(place: str) -> sqlite3.Connection:
    database = sqlite3.connect(place, check_same_thread=False, timeout=_BUSY_S, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # after a power cut, a lost line of a cache is read again
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_SCHEMA)
    except BaseException:
        database.close()
        raise
    return database
