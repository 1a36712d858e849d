"""Whether a memory and a disk are of one instant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

UPPER = "upper"


def same_instant(checkpoint: Path, disk: Path) -> bool:
    """Whether nothing in a sandbox's writable layer has changed since its memory was written.

    Looks at every file of the layer, so it is for the rare case that a waking was cut short.
    """
    try:
        written_ns = max(entry.stat().st_mtime_ns for entry in os.scandir(checkpoint))
        upper = disk / UPPER
        # A mount notes something in the layer's top directory: only its names count.
        return upper.stat().st_mtime_ns <= written_ns and all(
            stamp_ns <= written_ns for stamp_ns in _change_times(upper)
        )
    except (OSError, ValueError):
        return False


def _change_times(directory: Path) -> Iterator[int]:
    waiting = [os.fspath(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry.stat(follow_symlinks=False).st_ctime_ns
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
