"""The files of a checkpoint, written to the disk while they come."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import TracebackType

from atoll.errors import NoSpaceError
from atoll.host import sync_directory, syscalls

# State of the kernel, table of the memory pages, the pages: the names that runsc looks for at a restore.
NAMES = ("checkpoint.img", "pages_meta.img", "pages.img")

_PAUSE_S = 0.002


def open_new(path: Path, *, or_old: bool = False) -> int:
    """A descriptor of a file that is made, or with ``or_old`` of one that is there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (0 if or_old else os.O_EXCL)
    return os.open(path, flags, 0o600)


def reserve(path: Path, size_bytes: int) -> None:
    """Make a file that is empty and has room for as much.

    Raises:
        NoSpaceError: There is none.
    """
    fd = open_new(path)
    try:
        syscalls.take_room(fd, size_bytes)
    except OSError as error:
        raise NoSpaceError(
            f"there is no room for {size_bytes >> 20} MiB: {error.strerror}", hint="kill a sandbox"
        ) from None
    finally:
        os.close(fd)


def give_back_rest(path: Path) -> None:
    """Give back what room a file has behind its end."""
    os.truncate(path, path.stat().st_size)


class CheckpointFiles:
    """Three new files in a directory, open inside ``with``; the last one may be there, then it is written further.

    Args:
        into: The directory.
        flushed: Whether ``sync`` will be called. A thread then flushes from the start: without it the disk would
            idle while the sentry writes, and a checkpoint would take half as long again.

    Attributes:
        prepared: It has pages already.
        reserved: It has only room.
    """

    def __init__(self, into: Path, *, flushed: bool) -> None:
        self._into = into
        self._flushed = flushed
        self.fds: list[int] = []
        pages = into / NAMES[-1]
        there = pages.exists()
        self.prepared = there and pages.stat().st_size > 0
        self.reserved = there and not self.prepared
        self._written = threading.Event()
        self._failure: OSError | None = None
        self._flusher = threading.Thread(target=self._flush, name="checkpoint-flush")

    def __enter__(self) -> CheckpointFiles:
        try:
            for name in NAMES:
                self.fds.append(open_new(self._into / name, or_old=self._has_pages and name == NAMES[-1]))
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
        """Once all is written: return when the files and their names are on the disk.

        Raises:
            OSError: The disk is full or broken.
        """
        self.end_flusher()
        if self._failure is not None:  # the kernel may tell of it once
            raise self._failure
        for fd in self.fds:
            os.fsync(fd)
        sync_directory(self._into)

    def end_flusher(self) -> None:
        """Return when nothing is flushed any more, which may take as long as the disk does."""
        self._written.set()
        if self._flushed:
            self._flusher.join()

    def _flush(self) -> None:
        try:
            while not self._written.wait(_PAUSE_S):
                syscalls.begin_flush(self.fds[-1])
        except OSError as error:
            # Where a container's rules know no such call, nothing begins early.
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                self._failure = error

    def _close(self) -> None:
        for fd in self.fds:
            os.close(fd)
