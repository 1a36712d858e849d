"""Finds the kinds of sandbox disks that a home supports."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Literal

from atoll.errors import HostError
from atoll.host.namespaces.holder import Holder
from atoll.host.namespaces.mounts import Mounts
from atoll.host.trees.file_copy import reflinks
from atoll.host.trees.whole import open_top, remove_tree

DiskKind = Literal["frozen", "reflinked", "copied", "engine"]
"""A snapshot's way with a disk: freeze its layer, share or copy the changes, or leave it to the engine."""


def disk_kind(home: Path, holder: Holder) -> DiskKind:
    """Return the best kind that the home supports.

    Try it where disks are mounted: in the holder's namespaces. With only one id of the host no second user
    inside could own a file of a layer, so the engine keeps the disk.
    """
    if holder.lacks_ids is not None or not _mounts(home, complete=not holder.user_namespace):
        return "engine"
    if not holder.user_namespace:
        return "frozen"
    with open_top(home) as directory:
        return "reflinked" if reflinks(directory) else "copied"


def _mounts(home: Path, *, complete: bool) -> bool:
    try:
        place = Path(tempfile.mkdtemp(prefix=".trial-", dir=home))
    except OSError as error:
        return _is_full(error)
    try:
        for name in ("lower", "upper", "work", "at"):
            (place / name).mkdir()
        Mounts.overlay([place / "lower"], place / "upper", place / "work", place / "at", complete=complete)
        try:
            (place / "at" / "file").touch()
        finally:
            Mounts.unmount(place / "at")
    except (HostError, OSError) as error:
        return _is_full(error)
    else:
        return True
    finally:
        remove_tree(place)


def _is_full(error: Exception) -> bool:
    """Whether the disk was too full for the trial to say anything.

    Existing data on a full disk can still be used and erased.
    """
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
