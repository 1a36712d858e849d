"""Logs of builds: a file for each, so that they outlive the server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from atoll.host import append_log
from atoll.types import BuildLine

_LINES_MOST = 10_000
_TEXT_MOST = 2 << 20
# JSON may take six bytes for one of the text, and some for each line.
_FILE_MOST = 6 * _TEXT_MOST + 256 * _LINES_MOST
_ALL_MOST = 256 << 20
_CUT = "the log is too long: the rest of it is not kept"
_log = logging.getLogger(__name__)


class BuildLog:
    """The lines of one build that goes on: the first ten thousand, and 2 MiB at most.

    Args:
        path: The file, to which each is added at once.
    """

    def __init__(self, path: Path) -> None:
        self.lines: list[BuildLine] = []
        self._path = path
        self._size = 0
        self._writes = True

    def add(self, line: BuildLine) -> None:
        """Keep a line, if there is room."""
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
            _log.error("%s is not written: %s", self._path, error)


class BuildLogs:
    """The logs of a home's builds. Of too many the oldest go.

    Args:
        directory: Where they lie; made when the first is begun.
        most_bytes: Of all together.
    """

    def __init__(self, directory: Path, most_bytes: int = _ALL_MOST) -> None:
        self._directory = directory
        self._most_bytes = most_bytes

    def begin(self, build_id: str) -> BuildLog:
        """The log of a build that begins."""
        with contextlib.suppress(OSError):  # then it is not written, and says so
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
        return BuildLog(self._path(build_id))

    def read(self, build_id: str) -> list[BuildLine]:
        """What is kept of a build's log; whoever wrote it may have died in the middle of a line."""
        lines = []
        try:
            with self._path(build_id).open("rb") as file:
                for line in file.read(_FILE_MOST).splitlines():
                    with contextlib.suppress(ValueError):
                        lines.append(msgspec.json.decode(line, type=BuildLine))
        except FileNotFoundError:
            pass
        return lines

    def forget(self, build_ids: Iterable[str]) -> None:
        """Remove the logs of builds that nobody knows any more."""
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
        """When each was written last, its size, and where it is."""
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server was faster
                status = path.stat()
                yield status.st_mtime, status.st_size, path
