"""Reads the heads of the audit log that were kept elsewhere."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.errors import InvalidSpecError
from atoll.protocol import ANCHORS_MOST
from atoll.types import AuditAnchor
from atoll.types.internal import from_json


def read_anchors(path: Path) -> tuple[AuditAnchor, ...]:
    """Return the anchors of a file with a line of JSON for each, 10,000 at most.

    Each one vouches for all before it. So of more, the newer half is kept as it is, and older ones are left out evenly.
    A line that is still being written is left out.

    Raises:
        OSError: The file cannot be read.
        InvalidSpecError: A line is no anchor.
    """
    found: list[AuditAnchor] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found.append(from_json(line, AuditAnchor))
            except msgspec.DecodeError:
                if line.endswith(b"\n"):
                    raise InvalidSpecError(
                        f"line {number} of {path} is no anchor",
                        hint="give the lines that the command of ATOLL_AUDIT_ANCHOR got",
                    ) from None
    half = ANCHORS_MOST // 2
    older, newer = found[:-half], found[-half:]
    step = -(-len(older) // half) or 1
    return (*older[::step], *newer)
