"""Owners of an image's files that the host could not set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.types.internal import from_json

Owner = tuple[str, int, int]
"""A path below the root, a uid, a gid."""

_OWNERS = "owners.json"


def write_owners(image: Path, owners: Sequence[Owner]) -> None:
    """Record, next to ``rootfs``, files with owners other than root; the guest agent sets the owners at boot.

    Only needed where the host gives just one uid; elsewhere the files have their owners. Names that are not
    UTF-8 stay root's.
    """
    kept = [owner for owner in owners if _is_text(owner[0])]
    (image / _OWNERS).unlink(missing_ok=True)
    if kept:
        (image / _OWNERS).write_bytes(msgspec.json.encode(kept))


def stacked_owners(below: dict[str, tuple[int, int]], above: dict[str, tuple[int, int]]) -> None:
    """Combine the owners of the layers ``below`` with those of ``above``, which gives some files to root."""
    below.update(above)
    for path in [path for path, owner in below.items() if owner == (0, 0)]:
        del below[path]


def read_owners(image: Path) -> tuple[Owner, ...]:
    """Return the record of ``write_owners``; empty where the files have their owners."""
    try:
        return from_json((image / _OWNERS).read_bytes(), tuple[Owner, ...])
    except FileNotFoundError:
        return ()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
