"""Logs of builds, in a file each, so that they outlive the server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from atoll.host import append_log
from atoll.types import BuildLine
from atoll.types.internal import from_json

_LINES_MOST = 10_000
_TEXT_MOST = 2 << 20
# JSON may take six bytes for a byte of text, and some for each line.
_FILE_MOST = 6 * _TEXT_MOST + 256 * _LINES_MOST
_ALL_MOST = 256 << 20
_CUT = "the log is too long: the rest is not stored"
_log = logging.getLogger(__name__)


class BuildLog:
    """Writes the log of one running build: the first ten thousand lines, and 2 MiB at most.

    Args:
        path: The file. Each line is written at once.
    """

    def __init__(self, path: Path) -> None:
        self.lines: list[BuildLine] = []
        self._path = path
        self._size = 0
        self._writes = True

    def add(self, line: BuildLine) -> None:
        """Store a line, if there is room."""
        if self._size > _TEXT_MOST or len(self.lines) > _LINES_MOST:
            return
        self._size += len(line.message.encode(errors="replace"))
        if self._size > _TEXT_MOST or len(self.lines) == _LINES_MOST:
            line = BuildLine(at=line.at, level="warn", message=_CUT)
        self.lines.append(line)
        if not self._writes:
            return
        try:
            append_log(self._path, msgspec.json.encode(line).decode())
        except OSError as error:
            self._writes = False
            _log.error("cannot write %s: %s", self._path, error)


class BuildLogs:
    """Stores the logs of a home's builds. Beyond the size limit, the oldest logs go.

    Args:
        directory: The directory of the logs, made with the first log.
        most_bytes: The size limit of all logs together.
    """

    def __init__(self, directory: Path, most_bytes: int = _ALL_MOST) -> None:
        self._directory = directory
        self._most_bytes = most_bytes

    def begin(self, build_id: str) -> BuildLog:
        """Return the log for a build that begins."""
        with contextlib.suppress(OSError):  # without it the log is not written, and writing reports that
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
        return BuildLog(self._path(build_id))

    def read(self, build_id: str) -> list[BuildLine]:
        """Return the stored log of a build. Its writer may have died in the middle of a line."""
        lines = []
        try:
            with self._path(build_id).open("rb") as file:
                for line in file.read(_FILE_MOST).splitlines():
                    with contextlib.suppress(ValueError):
                        lines.append(from_json(line, BuildLine))
        except FileNotFoundError:
            pass
        return lines

    def forget(self, build_ids: Iterable[str]) -> None:
        """Remove the logs of builds that no longer exist."""
        for build_id in build_ids:
            self._path(build_id).unlink(missing_ok=True)

    def _path(self, build_id: str) -> Path:
        return self._directory / f"{build_id}.jsonl"

    def _sweep(self) -> None:
        left = self._most_bytes
        for _, size, path in sorted(self._entries(), reverse=True):
            left -= size
            if left < 0:
                path.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Iterate over the logs: time of the last write, size and path."""
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server was faster
                status = path.stat()
                yield status.st_mtime, status.st_size, path
