"""Single files: locked, and written so that a power cut leaves the old or the new one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file's content at once. Readers see the old or the new one, even after a power cut.

    Raises:
        OSError: It could not be written; then the old file is unchanged.
    """
    fd, aside = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fchmod"):  # before Python 3.13, Windows has none
                os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # the rename may already have happened
            os.unlink(aside)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no directories
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class DiskUsage(NamedTuple):
    """A file system in bytes: its size, and what this user may still write to it."""

    total: int
    free: int


def disk_usage(path: Path) -> DiskUsage:
    """Return the size and free space of the file system of ``path``."""
    usage = shutil.disk_usage(path)
    return DiskUsage(usage.total, usage.free)


def free_bytes(path: Path) -> int:
    """Return the bytes that this user may still write to the file system of ``path``."""
    return shutil.disk_usage(path).free


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is made if missing and never removed. Waits without a limit."""
    import fcntl  # only Unix has it, and a client of a remote server writes files on other systems

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
