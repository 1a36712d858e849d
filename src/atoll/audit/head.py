"""The head of a log: a record of the newest entry that is on the disk, so that a cut tail shows."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.audit.chain import code_of
from atoll.types import AuditAnchor
from atoll.types.internal import from_json

HEAD_NAME = "head.json"
# Two records of this size, written in turn: a power cut can spoil only the older one.
_RECORD_BYTES = 512


class Head(NamedTuple):
    """The newest entry that is on the disk: its sequence, and the hash of its line."""

    sequence: int
    digest: str


class HeadFile:
    """Records the newest entry.

    Args:
        directory: Where the log is.
        key: The key of the codes.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, directory: Path, key: bytes) -> None:
        self._key = key
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(directory / HEAD_NAME, flags, 0o600)
        # The newer record may be the first or the second one: the older one is written first.
        records = _records(directory, key)
        self._next = 1 if records[0] and (not records[1] or records[0].sequence > records[1].sequence) else 0

    def write(self, head: Head) -> AuditAnchor:
        """Record the newest entry, and return the record. It is on the disk when this returns.

        Raises:
            OSError: It cannot be written.
        """
        record = AuditAnchor(head.sequence, head.digest, _code(self._key, *head))
        data = msgspec.json.encode(record).ljust(_RECORD_BYTES - 1) + b"\n"
        os.pwrite(self._fd, data, self._next * _RECORD_BYTES)
        os.fdatasync(self._fd)
        self._next = 1 - self._next
        return record

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read_head(directory: Path, key: bytes) -> Head | None:
    """Return the head; None if it is missing, or if no record fits its code."""
    heads = [record for record in _records(directory, key) if record is not None]
    newest = max(heads, key=lambda record: record.sequence, default=None)
    return None if newest is None else Head(newest.sequence, newest.digest)


def _records(directory: Path, key: bytes) -> tuple[AuditAnchor | None, AuditAnchor | None]:
    try:
        with (directory / HEAD_NAME).open("rb") as file:
            data = file.read(2 * _RECORD_BYTES)
    except OSError:
        data = b""
    return _record(data[:_RECORD_BYTES], key), _record(data[_RECORD_BYTES:], key)


def is_ours(record: AuditAnchor, key: bytes) -> bool:
    """Tell whether the code of a record fits it."""
    code = _code(key, record.sequence, record.digest)
    return hmac.compare_digest(record.mac.encode(), code.encode())


def _record(data: bytes, key: bytes) -> AuditAnchor | None:
    try:
        record = from_json(data, AuditAnchor)
    except msgspec.DecodeError:
        return None
    return record if is_ours(record, key) else None


def _code(key: bytes, sequence: int, digest: str) -> str:
    return code_of(key, b"head %d %s" % (sequence, digest.encode()))
