"""Appends entries to the log of a home."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atoll.audit.chain import NO_LINE, Chain, digest_of, read_line
from atoll.audit.files import file_for, first_of, log_files
from atoll.audit.head import Head, HeadFile, read_head
from atoll.audit.reading import read_entries, read_newest
from atoll.audit.verifying import REMOVED, verify
from atoll.audit.writing import Made, Writer
from atoll.errors import NoSpaceError
from atoll.host import sync_directory
from atoll.types import AuditAnchor, AuditEntry, AuditPage, AuditReport

_FILE_BYTES = 64 << 20
_KEPT_BYTES = 4 << 30
# What cannot be written yet is kept in memory. With more, nothing further may be done.
_BEHIND_BYTES = 16 << 20
_LINES_BYTES = 2 << 20
_REMOVAL_S = 5.0
_log = logging.getLogger(__name__)


class AuditLog:
    """Appends entries. One process writes a log.

    Threads write the lines, and bring them to the disk and then the head. ``settle`` waits until a line outlives
    this process; soon after, it outlives a power cut.

    Args:
        directory: Where the files are, alone.
        key: Returns the key of the codes, which is kept elsewhere. It is told whether a log exists already.
        clock: Returns Unix seconds.
        file_bytes: The size at which another file begins.
        kept_bytes: The size of all files beyond which the oldest ones are removed. An entry says so.

    Attributes:
        writer: Writes the lines, and knows whether it is late.
    """

    def __init__(
        self,
        directory: Path,
        key: Callable[[bool], bytes],
        clock: Callable[[], float],
        *,
        file_bytes: int = _FILE_BYTES,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        self._directory = directory
        self._key_of = key
        self._key = b""
        self._clock = clock
        self._kept_bytes = kept_bytes
        self._chain = Chain(b"")
        self._head: HeadFile | None = None
        self._anchor: AuditAnchor | None = None
        self._lock = threading.Lock()
        self.writer = Writer(directory, file_bytes=file_bytes, synced=self._synced)

    @property
    def sequence(self) -> int:
        """The sequence of the newest entry."""
        return self._chain.sequence

    def open(self) -> None:
        """Go on where an earlier process stopped. What that left of a line is cut off.

        Raises:
            HostError: The key is missing, or cannot be used.
            OSError: The log cannot be read or written.
        """
        files = log_files(self._directory)
        self._key = self._key_of(bool(files))
        self._chain = Chain(self._key)
        path, size = self._end_of(files[-1]) if files else (file_for(self._directory, 1), 0)
        head = read_head(self._directory, self._key)
        if head is not None and head.sequence > self._chain.sequence:
            _log.error("the audit log has lost entries: `atoll audit verify` says which")
            # The next entry must not look like one of these.
            self._chain.sequence = head.sequence
        self._head = HeadFile(self._directory, self._key)
        self.writer.go_on(path, size, Head(self._chain.sequence, self._chain.digest))
        if not files:  # from now on, a log without a head has lost it
            sync_directory(self._directory)
            self._head.write(Head(0, NO_LINE))
        with contextlib.suppress(OSError):  # it may have been allowed to be larger
            self._remove_oldest()

    def note(self, act: str, *, at: float | None = None, **fields: Any) -> None:
        """Append an entry. It never fails nor waits: ``check`` tells if entries cannot be written.

        Args:
            act: What was done.
            at: When, in Unix seconds; None is now.
            **fields: The other fields of an ``AuditEntry``.
        """
        with self._lock:
            at = round(self._clock() if at is None else at, 6)
            entry = AuditEntry(sequence=self._chain.sequence + 1, at=at, act=act, **fields)
            line = self._chain.add(entry)
            self.writer.put(Made(self._chain.sequence, self._chain.digest, line))

    def settle(self) -> None:
        """Wait until all that is noted is written, or until an act may wait no longer."""
        self.writer.settle(self._chain.sequence)

    def check(self) -> None:
        """Find out whether further acts can be noted.

        Raises:
            NoSpaceError: Too much could not be written yet.
        """
        if self.writer.behind_bytes > _BEHIND_BYTES:
            raise NoSpaceError(
                f"the audit log in {self._directory} cannot be written",
                hint="make room on its disk; what is not noted may not be done",
            )

    def read(
        self, *, after: int, limit: int, wanted: Callable[[AuditEntry], bool], marks: Sequence[bytes] = ()
    ) -> AuditPage:
        """Return entries, see ``read_entries``."""
        self.settle()
        return read_entries(self._directory, after=after, limit=limit, wanted=wanted, marks=marks)

    def read_newest(
        self, *, count: int, wanted: Callable[[AuditEntry], bool], marks: Sequence[bytes] = ()
    ) -> AuditPage:
        """Return the newest entries, see ``read_newest``."""
        self.settle()
        return read_newest(self._directory, count=count, wanted=wanted, marks=marks)

    def size_bytes(self) -> int:
        """Return the size of all files.

        Raises:
            OSError: The log cannot be read.
        """
        return sum(path.stat().st_size for path in log_files(self._directory))

    def anchor(self) -> AuditAnchor | None:
        """Return the newest head that this process has brought to the disk."""
        return self._anchor

    def verify(self, read: Callable[[int], object] = int, anchors: Sequence[AuditAnchor] = ()) -> AuditReport:
        """Check the whole log, see ``verify``."""
        self.settle()
        return verify(self._directory, self._key, read, anchors)

    def close(self) -> None:
        """Bring all to the disk, and end."""
        self.writer.close()
        if self._head is not None:
            self._head.close()
            self._head = None

    def _end_of(self, path: Path) -> tuple[Path, int]:
        """The newest file, and its size without what is left of a line. The chain goes on behind its last line."""
        data = _tail(path)
        size = path.stat().st_size - len(data.rpartition(b"\n")[2])
        os.truncate(path, size)
        # The newest file may have no line yet.
        last = _last_line(path if size else _before(path))
        line = read_line(self._key, last)
        if line is not None:
            self._chain = Chain(self._key, line.sequence, line.digest)
        elif last:
            _log.error("the audit log has been changed: `atoll audit verify` says where")
            lines = path.read_bytes().count(b"\n")
            self._chain = Chain(self._key, first_of(path) - 1 + lines, digest_of(last))
        return path, size

    def _synced(self, newest: Head, is_rotated: bool) -> None:
        if self._head is not None:
            self._anchor = self._head.write(newest)
        if is_rotated:  # only a new file can make the log too big
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        files = log_files(self._directory)
        sizes = [path.stat().st_size for path in files]
        while len(files) > 1 and sum(sizes) > self._kept_bytes:
            line = read_line(self._key, _last_line(files[0]))
            through = first_of(files[1]) - 1
            self.note(REMOVED, details={"through": through, "digest": line.digest if line else ""})
            if not self.writer.wait(self._chain.sequence, _REMOVAL_S):
                return  # nothing goes that no entry tells of
            files[0].unlink()
            del files[0], sizes[0]


def _tail(path: Path) -> bytes:
    """The end of a file, with more than one line."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LINES_BYTES))
        return file.read()


def _last_line(path: Path | None) -> bytes:
    """The last line of a file, without its end; empty if there is none."""
    return b"" if path is None else _tail(path).rstrip(b"\n").rpartition(b"\n")[2]


def _before(path: Path) -> Path | None:
    """The file before this one."""
    return max((each for each in log_files(path.parent) if each < path), default=None)
