"""Whose an image's files are, where the host could not give them away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

Owner = tuple[str, int, int]
"""A path below the root, a uid, a gid."""

_OWNERS = "owners.json"


def write_owners(image: Path, owners: Sequence[Owner]) -> None:
    """Note, beside ``rootfs``, the files that belong to others than root; the guest agent gives them away at boot.

    Only where one number of the host is all there is: elsewhere the files have their owners. Names that are not
    UTF-8 stay root's.
    """
    kept = [owner for owner in owners if _is_text(owner[0])]
    (image / _OWNERS).unlink(missing_ok=True)
    if kept:
        (image / _OWNERS).write_bytes(msgspec.json.encode(kept))


def stacked_owners(below: dict[str, tuple[int, int]], above: dict[str, tuple[int, int]]) -> None:
    """Add to the owners of the layers ``below`` those of the one ``above``, which has taken some files to root."""
    below.update(above)
    for path in [path for path, owner in below.items() if owner == (0, 0)]:
        del below[path]


def read_owners(image: Path) -> tuple[Owner, ...]:
    """What ``write_owners`` noted; nothing where the files have their owners."""
    try:
        return msgspec.json.decode((image / _OWNERS).read_bytes(), type=tuple[Owner, ...])
    except FileNotFoundError:
        return ()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
