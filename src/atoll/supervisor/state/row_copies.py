"""Keeps a copy of each row beside its files, so that a lost or damaged database loses nothing."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.host import Home
from atoll.supervisor.state.rows import (
    KeptRow,
    KeyRow,
    SandboxRow,
    SecretRow,
    SnapshotRow,
    TeamRow,
    TemplateRow,
    VolumeRow,
    key_of,
)
from atoll.types.internal import from_json

ROW = "row.json"
_log = logging.getLogger(__name__)


class _Copy(msgspec.Struct, frozen=True):
    row: msgspec.Raw
    crc32: int


class RowCopies:
    """Keeps ``row.json`` in the directory of each sandbox, snapshot, volume, team, key, secret and template.

    The database is the truth. A copy is read only if the database or a row in it is lost or damaged.

    Args:
        home: Where those directories are.
    """

    def __init__(self, home: Home) -> None:
        self._directories: dict[type[KeptRow], Path] = {
            SandboxRow: home.sandboxes,
            SnapshotRow: home.snapshots,
            VolumeRow: home.volumes,
            TeamRow: home.teams,
            KeyRow: home.keys,
            SecretRow: home.secrets,
            TemplateRow: home.templates,
        }

    def keep(self, row: KeptRow) -> None:
        """Write a copy. A failure is only logged."""
        path = self._path(row)
        if not path.parent.is_dir():
            return
        raw = msgspec.json.encode(row)
        try:
            # This needs no flush to the disk: after a power cut the database counts.
            aside = path.with_suffix(".new")
            aside.write_bytes(msgspec.json.encode(_Copy(msgspec.Raw(raw), zlib.crc32(raw))))
            os.rename(aside, path)
        except OSError as error:
            _log.warning("cannot write %s: %s", path, error)

    def of(self, kind: type[KeptRow], id_: str) -> KeptRow | None:
        """The copy of a row, or None if there is none or it is damaged."""
        return _read(self._directories[kind] / id_ / ROW, kind)

    def all(self, *kinds: type[KeptRow]) -> Iterator[KeptRow]:
        """Every undamaged copy except those of killed sandboxes: of these kinds, or of all kinds."""
        for kind in kinds or self._directories:
            for path in sorted(self._directories[kind].glob(f"*/{ROW}")):
                row = _read(path, kind)
                if row is not None and self._path(row) == path and getattr(row, "state", None) != "killed":
                    yield row

    def place(self, row: KeptRow) -> Path:
        """The directory that a row describes."""
        return self._directories[type(row)] / key_of(row)

    def _path(self, row: KeptRow) -> Path:
        return self.place(row) / ROW


def _read(path: Path, kind: type[KeptRow]) -> KeptRow | None:
    try:
        copy = from_json(path.read_bytes(), _Copy)
        if zlib.crc32(copy.row) == copy.crc32:
            return from_json(copy.row, kind)
    except (OSError, ValueError):
        pass
    return None
