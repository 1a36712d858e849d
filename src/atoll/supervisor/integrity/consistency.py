"""Checks whether a memory and a disk are of the same moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atoll.errors import HostError
from atoll.snapshots import UNDONE

UPPER = "upper"


def assert_disk(disk: Path, sandbox_id: str) -> None:
    """Refuse to start if the disk is missing: an empty one in its place would hide the loss of files.

    Raises:
        HostError: The disk is missing.
    """
    if not disk.is_dir():
        raise HostError(
            f"the disk of sandbox {sandbox_id} is missing: {disk}",
            hint="restore the home from a backup, roll the sandbox back to a snapshot, or kill it",
            sandbox_id=sandbox_id,
        )


def same_instant(checkpoint: Path, disk: Path) -> bool:
    """Whether nothing in a sandbox's writable layer has changed since its memory was written.

    Looks at every file of the layer, so it is only for the rare case that a wake was interrupted. A freeze
    that was undone has changed the times at the top of the layer while nothing ran.
    """
    try:
        written_ns = max(entry.stat().st_mtime_ns for entry in os.scandir(checkpoint))
        upper = disk / UPPER
        undone = _undone_ns(disk)
        # A mount writes something into the layer's top directory: only the names there count.
        return _is_of(upper.stat().st_mtime_ns, written_ns, undone) and all(
            _is_of(stamp_ns, written_ns, undone if at_top else None)
            for stamp_ns, at_top in _change_times(upper)
        )
    except (OSError, ValueError):
        return False


def _is_of(stamp_ns: int, written_ns: int, undone: tuple[int, int] | None) -> bool:
    return stamp_ns <= written_ns or (undone is not None and undone[0] <= stamp_ns <= undone[1])


def _undone_ns(disk: Path) -> tuple[int, int] | None:
    try:
        note = disk / UNDONE
        return int(os.readlink(note)), note.lstat().st_ctime_ns
    except (FileNotFoundError, ValueError):
        return None


def _change_times(top: Path) -> Iterator[tuple[int, bool]]:
    waiting = [os.fspath(top)]
    while waiting:
        directory = waiting.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry.stat(follow_symlinks=False).st_ctime_ns, directory == os.fspath(top)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
