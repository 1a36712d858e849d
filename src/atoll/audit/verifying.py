"""Checks a whole log against its key, and names each place where it is not as it was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from atoll.audit.chain import NO_LINE, Line, read_line
from atoll.audit.files import first_of, log_files
from atoll.audit.head import HEAD_NAME, Head, is_ours, read_head
from atoll.types import AuditAnchor, AuditEntry, AuditFault, AuditFaultKind, AuditReport
from atoll.types.internal import from_json

REMOVED = "audit.removed"
_REMOVED_MARK = f'"act":"{REMOVED}"'.encode()
# For faults that only the anchors show.
ANCHORS_NAME = "anchors"
_FAULTS_MOST = 1000
_TOLD_BYTES = 4 << 20


def verify(
    directory: Path,
    key: bytes,
    read: Callable[[int], object] = int,
    anchors: Sequence[AuditAnchor] = (),
) -> AuditReport:
    """Check a log.

    Entries that are written meanwhile may be left out. At most 1,000 faults are named.

    Args:
        directory: Where the log is.
        key: The key of the codes.
        read: Called with how many bytes were read since the last call. It may raise, which ends the check.
        anchors: Earlier heads, which were kept elsewhere.

    Raises:
        OSError: The log cannot be read.
    """
    # Before the files, because they may grow meanwhile.
    check = _Check(key, read_head(directory, key), read, anchors)
    for path in log_files(directory):
        check.file(path)
    return check.report()


class _Anchors:
    """Compares the heads that were kept elsewhere with the lines that they are of."""

    def __init__(self, key: bytes, anchors: Sequence[AuditAnchor]) -> None:
        self.foreign = sorted({each.sequence for each in anchors if not is_ours(each, key)})
        self._digests: dict[int, set[str]] = {}
        for each in anchors:
            if is_ours(each, key):
                self._digests.setdefault(each.sequence, set()).add(each.digest)
        self.newest = max(self._digests, default=0)
        self.through: int | None = None
        self._fails = False

    def differs(self, line: Line) -> int | None:
        """Return the first entry that is another than at the time of this line's anchor; None if none is.

        What differs once differs in each later hash, and is told once.
        """
        digests = self._digests.get(line.sequence)
        if digests is None or self._fails:
            return None
        if digests == {line.digest}:
            self.through = line.sequence
            return None
        self._fails = True
        return (self.through or 0) + 1


class _Check:
    """Goes through the lines in their order."""

    def __init__(
        self, key: bytes, head: Head | None, read: Callable[[int], object], anchors: Sequence[AuditAnchor]
    ) -> None:
        self._read = read
        self._anchors = _Anchors(key, anchors)
        self._key = key
        self._head = head
        self._last = 0
        self._digest = ""  # of the last line; empty if it is unknown
        self._bad = 0  # lines since then that cannot be trusted
        self._good = 0
        self._begin: tuple[int, str | None] | None = None
        self._removed: dict[int, str] = {}
        self._file = ""
        self._faults: list[AuditFault] = []

    def file(self, path: Path) -> None:
        """Check a file."""
        begins = first_of(path)
        if self._file and begins > self._last + self._bad + 1:
            self._fault("missing", path.name, 0, self._last + self._bad + 1, begins - 1)
            self._last, self._digest, self._bad = begins - 1, "", 0
        self._file = path.name
        unread = 0
        with path.open("rb") as file:
            for number, data in enumerate(file, 1):
                unread += len(data)
                if unread >= _TOLD_BYTES:
                    self._read(unread)
                    unread = 0
                if not data.endswith(b"\n"):
                    # It is being written, or a crash has cut it short. If it was whole once, the head says so.
                    break
                self._line(number, data[:-1])
        self._read(unread)

    def _line(self, number: int, data: bytes) -> None:
        line = read_line(self._key, data)
        if line is None or not line.is_ours:
            self._bad += 1
            kind: AuditFaultKind = "unreadable" if line is None else "changed"
            self._fault(kind, self._file, number, self._last + self._bad)
            return
        if self._begin is None:
            # What stands before the first line that can be trusted has its own faults, and its hash is unknown.
            self._begin = line.sequence - self._bad, None if self._bad else line.prev
            self._last = line.sequence - self._bad - 1
        if line.sequence <= self._last:
            self._fault("misplaced", self._file, number, line.sequence)
            return
        follows = self._last + self._bad + 1
        if line.sequence > follows:
            self._fault("missing", self._file, number, follows, line.sequence - 1)
        elif self._digest and not self._bad and line.prev != self._digest:
            self._fault("misplaced", self._file, number, line.sequence)
        self._take(line, data)

    def _take(self, line: Line, data: bytes) -> None:
        self._last, self._digest, self._bad = line.sequence, line.digest, 0
        self._good += 1
        head = self._head
        if head is not None and head.sequence == line.sequence and head.digest != line.digest:
            self._fault("changed", HEAD_NAME, 0, line.sequence)
        differs = self._anchors.differs(line)
        if differs is not None:
            first = self._begin[0] if self._begin is not None else 1
            self._fault("unlike anchor", self._file, 0, max(first, differs), line.sequence)
        if _REMOVED_MARK in data:
            entry = from_json(data, AuditEntry)
            through, digest = entry.details.get("through"), entry.details.get("digest")
            if entry.act == REMOVED and isinstance(through, int) and isinstance(digest, str):
                self._removed[through] = digest

    def _fault(
        self,
        kind: AuditFaultKind,
        file: str,
        line: int = 0,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        if len(self._faults) < _FAULTS_MOST:
            self._faults.append(AuditFault(kind=kind, file=file, line=line, first=first, last=last))

    def report(self) -> AuditReport:
        """Return what was found."""
        first = self._check_begin()
        if self._head is None:
            if self._file:
                self._fault("no head", HEAD_NAME)
        elif self._head.sequence > self._last + self._bad:
            self._fault("cut", self._file or HEAD_NAME, 0, self._last + self._bad + 1, self._head.sequence)
        self._check_anchors()
        return AuditReport(
            entries=self._good,
            first=first,
            last=self._last,
            faults=self._faults,
            anchored=self._anchors.through,
        )

    def _check_anchors(self) -> None:
        for foreign in self._anchors.foreign:
            self._fault("unreadable", ANCHORS_NAME, 0, foreign)
        newest = self._anchors.newest
        if newest > max(self._last + self._bad, self._head.sequence if self._head else 0):
            self._fault("cut", ANCHORS_NAME, 0, self._last + self._bad + 1, newest)

    def _check_begin(self) -> int:
        """Find out whether the log may begin where it does: at its first entry, or where its own entry says."""
        if self._begin is None:
            return 0
        sequence, prev = self._begin
        expected = NO_LINE if sequence == 1 else self._removed.get(sequence - 1)
        if expected is None or prev not in (expected, None):
            fault = AuditFault(kind="missing", file=self._file, first=1, last=sequence - 1)
            self._faults.insert(0, fault)
        return sequence
