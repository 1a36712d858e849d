"""The tables of a catalog."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
_AT_ONCE = 500


class CatalogFile:
    """An SQLite database that any number of threads may use. One that cannot be read is made anew.

    Args:
        path: Its file. None keeps it in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.RLock()
        self._database = _open(path)

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._database.close()

    def all(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a query finds."""
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """The database, for one transaction inside ``with``."""
        with self._lock, self._database:
            yield self._database


def batches(ids: Iterable[bytes]) -> Iterator[tuple[list[bytes], str]]:
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
