"""Marks on the disk the sandboxes that are being unplugged, so that the next supervisor finishes that."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from atoll.host import continue_process, write_atomically
from atoll.types import Unplugged
from atoll.types.internal import from_json

_log = logging.getLogger(__name__)


class UnplugMark(msgspec.Struct, frozen=True, kw_only=True):
    """Says when and why a sandbox is being unplugged.

    ``stopped`` has the pid and start ticks of each process that was stopped by a signal, because the host has no
    control groups. A machine can answer only after these continue.
    """

    at: float
    reason: str
    stopped: tuple[tuple[int, int], ...] = ()


class UnplugMarks:
    """Writes, reads and removes marks.

    Args:
        path: Returns the path of a sandbox's mark.
        stamp: Changes when another process has written marks.
    """

    def __init__(self, path: Callable[[str], Path], stamp: Path) -> None:
        self._path = path
        self._stamp = stamp

    def stamp(self) -> int:
        """Return a number that changes when another process has written marks.

        Looking for the marks themselves would cost too much where very many sandboxes sleep.
        """
        try:
            return os.stat(self._stamp).st_mtime_ns
        except OSError:
            return 0

    def read(self, sandbox_id: str) -> UnplugMark | None:
        """Return the mark of a sandbox, if there is one. A damaged one counts."""
        try:
            data = self._path(sandbox_id).read_bytes()
        except OSError:
            return None
        try:
            return from_json(data, UnplugMark)
        except ValueError:
            return UnplugMark(at=0.0, reason="the mark that says why is damaged")

    def write(self, sandbox_id: str, wanted: Unplugged) -> None:
        """Write the mark of a sandbox, unless it has one. A failure is only logged.

        The network is cut already, and the row says the same a moment later.
        """
        path = self._path(sandbox_id)
        if path.exists():
            return
        try:
            write_atomically(path, msgspec.json.encode(UnplugMark(at=wanted.at, reason=wanted.reason)))
        except OSError as error:
            _log.warning("cannot write %s: %s", path, error)

    def release(self, sandbox_id: str) -> None:
        """Continue the processes that were stopped by a signal."""
        mark = self.read(sandbox_id)
        for pid, started_ticks in mark.stopped if mark else ():
            continue_process(pid, started_ticks)

    def remove(self, sandbox_id: str) -> None:
        """Remove the mark of a sandbox. Idempotent."""
        with contextlib.suppress(OSError):
            self._path(sandbox_id).unlink(missing_ok=True)
