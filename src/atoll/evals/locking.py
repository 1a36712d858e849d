"""A lock on a file, for the process that writes it. It ends with the file's descriptor, and with the process."""

from __future__ import annotations

import os
from importlib import import_module

# Windows forbids reading locked bytes, so the lock lies past the end of any journal.
_FAR = 0x7FFF0000


def lock(file: int) -> None:
    """Lock an open file, without waiting.

    Raises:
        BlockingIOError: Another process has locked it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        _lock_far(file)
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_far(file: int) -> None:
    windows = import_module("msvcrt")
    os.lseek(file, _FAR, os.SEEK_SET)
    try:
        windows.locking(file, windows.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(*error.args) from None
