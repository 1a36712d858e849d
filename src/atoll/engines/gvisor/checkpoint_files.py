"""The files of a checkpoint, flushed to the disk while they are written."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from atoll.errors import NoSpaceError
from atoll.host import sync_directory, syscalls

# Kernel state, table of memory pages, and the pages: runsc expects these names at a restore.
NAMES = ("checkpoint.img", "pages_meta.img", "pages.img")

_PAUSE_S = 0.002


def open_new(path: Path, *, or_old: bool = False) -> int:
    """Make a file and return its descriptor; with ``or_old`` an existing file is opened."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (0 if or_old else os.O_EXCL)
    return os.open(path, flags, 0o600)


def reserve(path: Path, size_bytes: int) -> None:
    """Make an empty file with ``size_bytes`` of space reserved for it.

    Raises:
        NoSpaceError: There is not enough space.
    """
    fd = open_new(path)
    try:
        syscalls.take_room(fd, size_bytes)
    except OSError as error:
        raise NoSpaceError(
            f"memory has no room for {size_bytes >> 20} MiB: {error.strerror}", hint="kill a sandbox"
        ) from None
    finally:
        os.close(fd)


def give_back_rest(path: Path) -> None:
    """Give back the space that is reserved beyond a file's end."""
    os.truncate(path, path.stat().st_size)


class CheckpointFiles:
    """Opens three new files in a directory inside ``with``. If the last file exists, this continues it.

    Args:
        into: The directory.
        flushed: Whether ``sync`` will be called. A thread then flushes from the start. Otherwise the disk
            would be idle while the sentry writes, and a checkpoint would take half as long again.
        earlier: Files of earlier checkpoints that are passed with them.

    Attributes:
        prepared: The file already has pages.
        reserved: The file has only reserved space.
    """

    def __init__(self, into: Path, *, flushed: bool, earlier: Sequence[Path] = ()) -> None:
        self._into = into
        self._earlier = earlier
        self._flushed = flushed
        self.fds: list[int] = []
        pages = into / NAMES[-1]
        there = pages.exists()
        # A file in memory has only reserved space.
        self.reserved = pages.is_symlink()
        self.prepared = there and not self.reserved
        self._written = threading.Event()
        self._failure: OSError | None = None
        self._flusher = threading.Thread(target=self._flush, name="checkpoint-flush")

    def __enter__(self) -> CheckpointFiles:
        try:
            for name in NAMES:
                self.fds.append(open_new(self._into / name, or_old=self._has_pages and name == NAMES[-1]))
            for path in self._earlier:
                self.fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            if self._flushed:
                self._flusher.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_flusher()
        self._close()

    @property
    def _has_pages(self) -> bool:
        return self.prepared or self.reserved

    def sync(self) -> None:
        """Return when the files and their names are on the disk. Call it after the last write.

        Raises:
            OSError: The disk is full or broken.
        """
        self.end_flusher()
        if self._failure is not None:  # the kernel may report it only once
            raise self._failure
        for fd in self.fds:
            os.fsync(fd)
        sync_directory(self._into)

    def end_flusher(self) -> None:
        """Stop the flusher, and wait for it and thus for the disk."""
        self._written.set()
        if self._flushed:
            self._flusher.join()

    def _flush(self) -> None:
        try:
            while not self._written.wait(_PAUSE_S):
                syscalls.begin_flush(self.fds[len(NAMES) - 1])
        except OSError as error:
            # Where a container's rules forbid this call, flushing does not start early.
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                self._failure = error

    def _close(self) -> None:
        for fd in self.fds:
            os.close(fd)
