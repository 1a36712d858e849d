"""A copy of each row beside what it describes, so that a lost or damaged database loses nothing."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.supervisor.rows import SandboxRow, SnapshotRow

ROW = "row.json"
_log = logging.getLogger(__name__)


class _Copy(msgspec.Struct, frozen=True):
    row: msgspec.Raw
    crc32: int


class Copies:
    """``row.json`` in the directory of each sandbox and snapshot.

    The database is the truth; a copy is read when the database, or a row in it, is lost or not what it was.

    Args:
        sandboxes: Where sandboxes have their directories.
        snapshots: Where snapshots have theirs.
    """

    def __init__(self, sandboxes: Path, snapshots: Path) -> None:
        self._sandboxes = sandboxes
        self._snapshots = snapshots

    def keep(self, row: SandboxRow | SnapshotRow) -> None:
        """Keep a copy; one that cannot be written is only logged."""
        path = self._path(row)
        if not path.parent.is_dir():
            return
        raw = msgspec.json.encode(row)
        try:
            # Without waiting for the disk: after a power cut the database has what counts.
            aside = path.with_suffix(".new")
            aside.write_bytes(msgspec.json.encode(_Copy(msgspec.Raw(raw), zlib.crc32(raw))))
            os.rename(aside, path)
        except OSError as error:
            _log.warning("%s is not written: %s", path, error)

    def of(self, kind: type[SandboxRow] | type[SnapshotRow], id_: str) -> SandboxRow | SnapshotRow | None:
        """The copy of a row, if there is one that is whole."""
        directory = self._sandboxes if kind is SandboxRow else self._snapshots
        return _read(directory / id_ / ROW, kind)

    def all(self) -> Iterator[SandboxRow | SnapshotRow]:
        """Every copy that is whole, but of what was killed."""
        for directory, kind in ((self._sandboxes, SandboxRow), (self._snapshots, SnapshotRow)):
            for path in sorted(directory.glob(f"*/{ROW}")):
                row = _read(path, kind)
                if row is not None and self._path(row) == path and getattr(row, "state", None) != "killed":
                    yield row

    def _path(self, row: SandboxRow | SnapshotRow) -> Path:
        if isinstance(row, SandboxRow):
            return self._sandboxes / row.sandbox_id / ROW
        return self._snapshots / row.snapshot_id / ROW


def _read(path: Path, kind: type[SandboxRow] | type[SnapshotRow]) -> SandboxRow | SnapshotRow | None:
    try:
        copy = msgspec.json.decode(path.read_bytes(), type=_Copy)
        if zlib.crc32(copy.row) == copy.crc32:
            return msgspec.json.decode(copy.row, type=kind)
    except (OSError, ValueError):
        pass
    return None
