"""Reads entries of a log, while it is written or not."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from pathlib import Path

import msgspec

from atoll.audit.files import first_of, log_files
from atoll.types import AuditEntry, AuditPage
from atoll.types.internal import from_json

# So much is read for one page at the most, whatever is looked for: the next page goes on there.
_SCAN_BYTES = 32 << 20


def read_entries(
    directory: Path, *, after: int, limit: int, wanted: Callable[[AuditEntry], bool]
) -> AuditPage:
    """Return entries from after a sequence on, in their order: ``limit`` at most that are wanted.

    A line that is no entry is left out; ``verify`` names it.

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
                entry = _entry(line)
                if entry is None or entry.sequence <= after:
                    continue
                reached = max(reached, entry.sequence)
                if wanted(entry):
                    found.append(entry)
    return AuditPage(entries=found, next=reached)


def _entry(line: bytes) -> AuditEntry | None:
    if not line.endswith(b"\n"):  # it is being written
        return None
    try:
        return from_json(line, AuditEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
