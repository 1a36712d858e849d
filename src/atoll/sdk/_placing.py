"""Renames the files of an archive to the names that a copy step gives them in the sandbox."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Callable, Generator, Iterable, Iterator

from atoll.errors import AgentError, InvalidSpecError
from atoll.sdk._context import LONGEST_PATH, is_pattern, matched, pattern_of
from atoll.sdk._tar import Entry, TarReader

_BLOCK = 512
_TYPES = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
}


class Placing:
    """Rewrites one source of a copy step, as a tar for a sandbox.

    A directory's content goes into the target. A file becomes the target, or goes into it if the target is a
    directory.

    Args:
        source: Which files of the archive to copy, as in ``CopyStep``.
        target: The absolute path that the files get.
        into: Whether the target is certainly a directory.
        pieces: The archive, which is not trusted.
        going_on: Is called for each piece, and raises when nothing more is to be read: a small archive can be
            endless once it is unpacked, and what is not copied yields nothing.

    Attributes:
        root: The directory to unpack into, known after the first piece of ``placed``.
    """

    def __init__(
        self,
        source: str,
        target: str,
        *,
        into: bool,
        pieces: Iterable[bytes],
        going_on: Callable[[], object] = bool,
    ) -> None:
        self._source = source
        self._pattern = pattern_of(source)
        self._into = into or is_pattern(source) or not self._pattern
        self._target = target
        self._pieces = pieces
        self._going_on = going_on
        self.root = posixpath.normpath(target)
        self.count = 0

    def placed(self) -> Generator[bytes, None, None]:
        """Iterate over the pieces of the new tar.

        Raises:
            InvalidSpecError: The data is not an archive, or it has no such file.
        """
        try:
            yield from self._rewritten()
        except AgentError:
            raise InvalidSpecError("the given archive is not a tar") from None
        if not self.count and self._pattern:
            raise InvalidSpecError(f"{self._source!r} matches no file of the given archive")
        yield bytes(2 * _BLOCK)

    def _rewritten(self) -> Iterator[bytes]:
        reader, is_wanted, padding = TarReader(), False, 0
        for piece in self._pieces:
            self._going_on()
            gathered: list[bytes] = []
            for event in reader.feed(piece):
                if isinstance(event, Entry):
                    header = self._header(event)
                    is_wanted = header is not None
                    padding = -event.size_bytes % _BLOCK
                    gathered.append(header or b"")
                elif is_wanted:
                    gathered.append(event if event else bytes(padding))
            if joined := b"".join(gathered):
                yield joined
        if not reader.ended:
            raise InvalidSpecError("the given archive is truncated")

    def _header(self, entry: Entry) -> bytes | None:
        """Return the entry's new header, or None if the entry is not wanted."""
        name = self._name(entry.name, is_directory=entry.kind == "directory")
        if name is None or entry.kind == "other":
            return None
        info = tarfile.TarInfo(name)
        info.type = _TYPES[entry.kind]
        info.mode, info.mtime = entry.mode, entry.modified_at
        info.size = entry.size_bytes if entry.kind == "file" else 0
        if entry.kind == "symlink":
            info.linkname = entry.target
        elif entry.kind == "hardlink":
            target = self._name(entry.target, is_directory=False)
            if target is None:
                return None
            info.linkname = target
        self.count += 1
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _name(self, name: str, *, is_directory: bool) -> str | None:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or name.startswith("/"):
            raise InvalidSpecError(f"the archive's entry {name[:200]!r} leads out of it")
        if len(name) > LONGEST_PATH:
            raise InvalidSpecError(f"the archive's entry {name[:200]!r}… has too long a name")
        length = matched(parts, self._pattern)
        if length is None:
            return None
        below = parts[length:]
        if below:
            return "/".join(below)
        if is_directory or not parts:
            self.count += 1
            return None
        if self._into:
            return parts[-1]
        self.root, self._into = posixpath.split(self.root)[0], True
        return posixpath.basename(posixpath.normpath(self._target))
