"""Reads entries of a log, while it is written or not."""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from atoll.audit.files import first_of, log_files
from atoll.types import AuditEntry, AuditPage
from atoll.types.internal import from_json

# So much is read for one page at the most, whatever is looked for: the next page goes on there.
_SCAN_BYTES = 32 << 20
_BLOCK_BYTES = 1 << 20
_SEQUENCE = re.compile(rb'\{"sequence":([1-9][0-9]{0,18}),')


Wanted = Callable[[AuditEntry], bool]


def read_entries(
    directory: Path, *, after: int, limit: int, wanted: Wanted, marks: Sequence[bytes] = ()
) -> AuditPage:
    """Return entries from after a sequence on, in their order: ``limit`` at most that are wanted.

    A line that is no entry is left out; ``verify`` names it.

    Args:
        marks: What the lines of all that is wanted have in them, see ``mark_of``. Others are not looked at.

    Raises:
        OSError: The log cannot be read.
    """
    found: list[AuditEntry] = []
    files = log_files(directory)
    at = max(0, bisect.bisect_right([first_of(path) for path in files], after + 1) - 1)
    scanned, reached = 0, after
    for path in files[at:]:
        with path.open("rb") as file:
            for line in file:
                if len(found) >= limit or scanned > _SCAN_BYTES:
                    return AuditPage(entries=found, next=reached)
                scanned += len(line)
                sequence = _sequence(line)
                if sequence <= after:
                    continue
                reached = max(reached, sequence)
                entry = _wanted(line, wanted, marks)
                if entry is not None:
                    found.append(entry)
    return AuditPage(entries=found, next=reached)


def read_newest(directory: Path, *, count: int, wanted: Wanted, marks: Sequence[bytes] = ()) -> AuditPage:
    """Return the newest entries that are wanted, in their order: ``count`` of them, fewer if they lie far back.

    The next page begins after the newest one of all. The rest is as for ``read_entries``.
    """
    found: list[AuditEntry] = []
    scanned = newest = 0
    for path in reversed(log_files(directory)):
        for line in _backwards(path):
            newest = newest or _sequence(line)
            if len(found) >= count or scanned > _SCAN_BYTES:
                return AuditPage(entries=found[::-1], next=newest)
            scanned += len(line)
            entry = _wanted(line, wanted, marks)
            if entry is not None:
                found.append(entry)
    return AuditPage(entries=found[::-1], next=newest)


def mark_of(name: str, value: str) -> bytes:
    """Return what the line of an entry has in it whose field has this value."""
    return msgspec.json.encode({name: value})[1:-1]


def _backwards(path: Path) -> Iterator[bytes]:
    """Iterate over the lines of a file, the last one first. What is being written is left out."""
    with path.open("rb") as file:
        end, rest = file.seek(0, os.SEEK_END), b""
        while end > 0:
            begin = max(0, end - _BLOCK_BYTES)
            file.seek(begin)
            lines = (file.read(end - begin) + rest).splitlines(keepends=True)
            rest = lines.pop(0) if begin else b""
            for line in reversed(lines):
                if line.endswith(b"\n"):
                    yield line
            end = begin


def _sequence(line: bytes) -> int:
    """The sequence of an entry; 0 for what is none."""
    found = _SEQUENCE.match(line)
    return int(found[1]) if found is not None and line.endswith(b"\n") else 0


def _wanted(line: bytes, wanted: Wanted, marks: Sequence[bytes]) -> AuditEntry | None:
    if not all(mark in line for mark in marks):
        return None
    entry = _entry(line)
    return entry if entry is not None and wanted(entry) else None


def _entry(line: bytes) -> AuditEntry | None:
    if not line.endswith(b"\n"):  # it is being written
        return None
    try:
        return from_json(line, AuditEntry)
    except msgspec.DecodeError:
        return None
