"""Writes the lines of a log in threads, so that a slow or full disk delays nobody for long."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from atoll.audit.files import file_for, opened
from atoll.audit.head import Head
from atoll.host import sync_directory

# An act waits for its line at most this long.
PATIENCE_S = 0.05
_AGAIN_S = 1.0
# A disk that hangs may not keep the supervisor from ending.
_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class Made(NamedTuple):
    """A line to write, with its end, and its hash without it."""

    sequence: int
    digest: str
    text: bytes


class Writer:
    """Appends lines to the files of a log. One thread writes, another brings to the disk what is written.

    A line that is written outlives this process, and one that is on the disk outlives a power cut.

    Args:
        directory: Where the files are.
        file_bytes: The size at which another file begins.
        synced: Called with the newest entry that is on the disk, and whether another file has begun since.

    Attributes:
        behind_bytes: The size of what is not written yet.
        is_late: What was noted has waited longer than an act may, and is not all written yet.
        on_late: Called when ``is_late`` changes, in any thread.
    """

    def __init__(self, directory: Path, *, file_bytes: int, synced: Callable[[Head, bool], None]) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._synced = synced
        self._fd = -1
        self._size = 0
        self._full: list[int] = []
        self._lock = threading.Lock()
        self._behind: deque[Made] = deque()
        self._written = Head(0, "")
        self._waiting: list[tuple[int, threading.Lock]] = []
        self._idle = False
        self._wake = _locked()
        self._some = threading.Event()
        self._closed = self._ended = False
        self._threads = [
            threading.Thread(target=target, name=f"audit {name}", daemon=True)
            for name, target in (("writes", self._write_all), ("syncs", self._sync_all))
        ]
        self.behind_bytes = 0
        self.is_late = False
        self.on_late: Callable[[], None] = lambda: None

    def go_on(self, path: Path, size: int, last: Head) -> None:
        """Begin to write, in a file of this size behind the last line.

        Raises:
            OSError: The file cannot be opened.
        """
        self._fd, self._size, self._written = opened(path), size, last
        for each in self._threads:
            each.start()

    def put(self, line: Made) -> None:
        """Have a line written soon."""
        with self._lock:
            self._behind.append(line)
            self.behind_bytes += len(line.text)
            is_idle, self._idle = self._idle, False
        if is_idle:
            self._wake.release()

    def settle(self, sequence: int) -> None:
        """Wait until a line is written: at most ``PATIENCE_S``, and not at all while this is late."""
        if not self.is_late and not self.wait(sequence, PATIENCE_S):
            self._set_late()

    def wait(self, sequence: int, patience_s: float) -> bool:
        """Wait so long until a line is written. Returns whether it is."""
        with self._lock:
            if self._written.sequence >= sequence:
                return True
            written = _locked()
            self._waiting.append((sequence, written))
        return written.acquire(timeout=patience_s)

    def close(self) -> None:
        """Write all and bring it to the disk, as far as the disk lets it in time."""
        writes, syncs = self._threads
        if self._fd < 0:
            return
        self._ended = True
        self._some.set()
        syncs.join(_CLOSE_S)  # which may have lines written
        with self._lock:
            self._closed = True
            is_idle, self._idle = self._idle, False
        if is_idle:
            self._wake.release()
        writes.join(_CLOSE_S)
        if writes.is_alive() or syncs.is_alive():
            _log.error("the audit log is not all written: its disk does not answer")
            return
        with contextlib.suppress(OSError):  # a thread has told of it
            self._sync(is_last=True)
        os.close(self._fd)
        self._fd = -1

    def _write_all(self) -> None:
        is_told = False
        while self._wait():
            try:
                self._write()
                is_told = False
            except OSError as error:
                if not is_told:
                    _log.error("the audit log cannot be written: %s", error)
                is_told = True
                self._set_late()
                if self._closed:
                    return
                time.sleep(_AGAIN_S)

    def _wait(self) -> bool:
        """Wait for lines. False is the end of all."""
        with self._lock:
            if self._behind:
                return True
            if self._closed:
                return False
            self._idle = True
        self._wake.acquire()
        return True

    def _write(self) -> None:
        while self._behind:
            line = self._behind[0]
            if self._size >= self._file_bytes:
                self._begin_file(line.sequence)
            written = os.write(self._fd, line.text)
            if written < len(line.text):
                os.ftruncate(self._fd, self._size)
                raise OSError(errno.ENOSPC, "the disk is full")
            self._size += written
            self._done(line)

    def _done(self, line: Made) -> None:
        with self._lock:
            self._behind.popleft()
            self.behind_bytes -= len(line.text)
            self._written = Head(line.sequence, line.digest)
            has_caught_up = self.is_late and not self._behind
            self.is_late = self.is_late and not has_caught_up
            waiting, self._waiting = self._waiting, []
            for sequence, written in waiting:
                if sequence <= line.sequence:
                    written.release()
                else:
                    self._waiting.append((sequence, written))
        self._some.set()
        if has_caught_up:
            self.on_late()

    def _set_late(self) -> None:
        with self._lock:
            if self.is_late or not self._behind:
                return
            self.is_late = True
        self.on_late()

    def _begin_file(self, sequence: int) -> None:
        fd = opened(file_for(self._directory, sequence))
        with self._lock:
            self._full.append(self._fd)
            self._fd, self._size = fd, 0

    def _sync_all(self) -> None:
        is_told = False
        while True:
            self._some.wait()
            self._some.clear()
            is_last = self._ended
            try:
                self._sync()
                is_told = False
            except OSError as error:
                if not is_told:
                    _log.error("the audit log does not get to the disk: %s", error)
                is_told = True
                if not is_last:
                    time.sleep(_AGAIN_S)
                    self._some.set()
            if is_last:
                return

    def _sync(self, *, is_last: bool = False) -> None:
        with self._lock:
            written = self._written
            full, self._full = self._full, []
            full.append(os.dup(self._fd))
        if len(full) > 1:
            sync_directory(self._directory)
        for fd in full:
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        self._synced(written, len(full) > 1 and not is_last)


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
