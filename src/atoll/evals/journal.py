"""The journal of an evaluation: a file of JSON lines from which it goes on after a crash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from atoll.errors import DamagedError, InUseError
from atoll.evals.locking import lock
from atoll.evals.rows import Row
from atoll.types.internal import as_json, from_json

_FORMAT = 1
_BINARY = getattr(os, "O_BINARY", 0)
# of every journal, also of one whose first line was cut off
_BEGINNING = b'{"evaluation":"'


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a journal, which identifies the evaluation.

    ``own_snapshot`` says that the snapshot was made for the evaluation, and is deleted at its end. ``request``
    is the digest of its strategies and of its ``code``.
    """

    evaluation: str
    snapshot_id: str
    start_hash: str
    request: str
    own_snapshot: bool = False
    strategies: list[str] = []
    format: int = _FORMAT


def request_digest(strategies: Mapping[str, Any], code: str) -> str:
    """Return the digest of everything besides the state that a journal's rows depend on."""
    asked = msgspec.json.encode([sorted(strategies.items()), code], order="sorted")
    return hashlib.sha256(asked).hexdigest()


class Journal:
    """A journal that one process writes. Without a path it remembers nothing.

    Attributes:
        header: Its first line; None in a new one.
        rows: Its rows, in the order in which they were written.
        lasting: Whether it is a file, which outlives this process.
        resumed: Whether another process has begun it.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.header: Header | None = None
        self.rows: list[Row] = []
        self._file: int | None = None
        self.lasting = path is not None
        if path is not None:
            self._open(Path(path))
        self.resumed = self.header is not None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def begin(self, header: Header) -> None:
        """Write the first line. It is on the disk when this returns."""
        self._write(header)
        self.header = header

    def add(self, row: Row) -> None:
        """Write a row. It is on the disk when this returns."""
        self._write(row)
        self.rows.append(row)

    def _open(self, path: Path) -> None:
        new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o600)
        try:
            try:
                lock(file)
            except BlockingIOError:
                raise InUseError(
                    f"another process writes the journal {path}",
                    hint="wait for its end, or give another path",
                ) from None
            data = path.read_bytes()
            self.header, self.rows, whole = _read(path, data)
            # the last line of a process that was killed while it wrote
            os.ftruncate(file, whole)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        if new:
            _sync_directory(path.parent)

    def _write(self, line: Header | Row) -> None:
        if self._file is None:
            return
        rest = memoryview(as_json(line) + b"\n")
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)


def _sync_directory(path: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no directories
        return
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_journal(path: str | os.PathLike[str]) -> tuple[Header, list[Row]]:
    """Return the content of a journal, also while it is being written.

    Raises:
        DamagedError: The file is no journal of an evaluation.
        OSError: It cannot be read.
    """
    header, rows, _ = _read(Path(path), Path(path).read_bytes())
    if header is None:
        raise DamagedError(f"{path} is no journal of an evaluation: it is empty")
    return header, rows


def latest(rows: list[Row]) -> dict[tuple[str, int], Row]:
    """Return the newest row of each run. A stopped run may have run again."""
    return {(row.strategy, row.repeat): row for row in rows}


def _read(path: Path, data: bytes) -> tuple[Header | None, list[Row], int]:
    """Return the header, the rows, and how many bytes of whole lines there are."""
    whole = data.rfind(b"\n") + 1
    if not whole and data[: len(_BEGINNING)] == _BEGINNING[: len(data)]:
        return None, [], 0
    first, *others = data.split(b"\n")[:-1] or [data]
    try:
        return from_json(first, Header), [from_json(line, Row) for line in others], whole
    except msgspec.MsgspecError as error:
        raise DamagedError(
            f"{path} is no journal of an evaluation: {error}", hint="give another path"
        ) from None
