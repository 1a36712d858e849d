"""Unpacks a tar from a guest on the host. All of the tar may be hostile.

Nothing is ever written through a symbolic link, above the target or into an existing file. Every step starts
from an open directory, and every file is new.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from atoll.errors import AgentError, FileError
from atoll.sdk._below import Directory, opened
from atoll.sdk._tar import Entry, TarReader

_PATH_BYTES = 4096
_NAME_BYTES = 255
_DEPTH = 256
_DIRECTORY_NAMES_CHARS = 64 << 20
_HOLE_BYTES = 4096
_ZEROES = bytes(1 << 20)


class Limits(NamedTuple):
    """How large a guest's tree may be: see ``Files.download``."""

    outside_links: bool = True
    max_bytes: int | None = None
    max_entries: int = 1_000_000


class _Made(NamedTuple):
    device: int
    inode: int


class _Look(NamedTuple):
    mode: int
    modified_at: float


class Unpacker:
    """Unpacks a tar into ``root``, which exists, as its bytes arrive.

    Memory depends on the number of entries, not on their names: for files, only the inodes are kept.
    """

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root: Directory | None = opened(root)
        self._limits = limits
        self._tar = TarReader()
        self._file: int | None = None
        self._file_in: Directory | None = None
        self._size = 0
        self._files: set[_Made] = set()
        self._directories: dict[str, _Look] = {}
        self._directory_chars = 0
        self._entries = 0
        self._directories_made = 0
        self.done_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the tar.

        Raises:
            AgentError: The bytes are not a tar, or the tar must not be unpacked.
            OSError: The host's disk refuses to write.
        """
        for event in self._tar.feed(data):
            if isinstance(event, Entry):
                self._begin(event)
            elif event:
                self._write(event)
            else:
                self._finish_file()

    def finish(self) -> None:
        """Give the directories their modes and times. Call this after the last byte.

        Raises:
            AgentError: The tar was cut off.
        """
        if not self._tar.ended:
            raise AgentError("the archive from the sandbox is truncated")
        for path, look in reversed(self._directories.items()):
            with self._parent((*path.split("/"), ".")) as directory:
                directory.set_look(look.mode & 0o777 | 0o700, look.modified_at)

    def close(self) -> None:
        """Close everything that is open. Idempotent."""
        if self._file is not None:
            os.close(self._file)
        for directory in (self._file_in, self._root):
            if directory is not None:
                directory.close()
        self._file = self._file_in = self._root = None

    def _begin(self, entry: Entry) -> None:
        self._entries += 1
        # A long path makes many directories that have no entry of their own.
        implied = max(0, self._directories_made - len(self._directories))
        if self._entries + implied > self._limits.max_entries:
            raise FileError(
                f"the tree has more than max_entries, {self._limits.max_entries}",
                hint="give a higher limit, or download a part of the tree",
            )
        parts = _parts(entry.name)
        if entry.kind == "directory":
            if parts:
                self._make_directory(parts, entry)
            return
        if not parts:
            raise AgentError(f"the archive from the sandbox has a file without a name: {entry.name!r}")
        if entry.kind == "file":
            self._open_file(parts, entry)
        elif entry.kind == "symlink":
            self._make_link(parts, entry.target)
        elif entry.kind == "hardlink":
            self._make_hard_link(parts, _parts(entry.target))

    @contextlib.contextmanager
    def _parent(self, parts: tuple[str, ...]) -> Iterator[Directory]:
        """Open the directory that ``parts`` lies in. Missing directories are made; no link is followed."""
        at = self._at_root()
        try:
            for part in parts[:-1]:
                below = self._entered(at, part)
                at.close()
                at = below
            yield at
        finally:
            at.close()

    def _at_root(self) -> Directory:
        if self._root is None:
            raise ValueError("the directory of the archive is closed")
        return self._root.again()

    def _entered(self, at: Directory, part: str) -> Directory:
        if part == ".":
            return at.enter(part)
        with contextlib.suppress(FileExistsError):  # then it must be a directory, which opening it verifies
            at.make(part)
            self._directories_made += 1
        try:
            return at.enter(part)
        except OSError as error:
            if stat.S_ISLNK(at.stat(part).st_mode):
                raise AgentError(
                    f"the archive from the sandbox has a path through the symbolic link {part!r}"
                ) from None
            raise FileError(f"{part!r} is in the way: {error}") from None

    def _clear(self, parent: Directory, name: str) -> None:
        """Remove a file or link that already has the name, so that nothing is written into it."""
        try:
            # When an inode's last name goes, its number may return for something that is not of this archive.
            found = parent.stat(name)
            parent.unlink(name)
            if found.st_nlink == 1:
                self._files.discard(_made(found))
        except FileNotFoundError:  # the usual case
            return
        except IsADirectoryError as error:
            raise FileError(f"{name!r} is in the way: {error}") from None

    def _make_directory(self, parts: tuple[str, ...], entry: Entry) -> None:
        with self._parent((*parts, ".")):
            pass
        path = "/".join(parts)
        self._directory_chars += 0 if path in self._directories else len(path)
        if self._directory_chars > _DIRECTORY_NAMES_CHARS:
            raise AgentError("the archive from the sandbox has too many directories with long names")
        self._directories[path] = _Look(entry.mode, entry.modified_at)

    def _open_file(self, parts: tuple[str, ...], entry: Entry) -> None:
        with self._parent(parts) as parent:
            self._clear(parent, parts[-1])
            self._file = parent.new_file(parts[-1])
            self._file_in = parent.again()
        self._name = parts[-1]
        self._files.add(_made(os.fstat(self._file)))
        self._entry = entry
        self._size = 0

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        self.done_bytes += len(data)
        most = self._limits.max_bytes
        if most is not None and self.done_bytes > most:
            raise FileError(
                f"the tree has more than max_bytes, {most}",
                hint="give a higher limit, or download a part of the tree",
            )
        self._size += len(data)
        write_sparse(self._file, data)

    def _finish_file(self) -> None:
        if self._file is None or self._file_in is None:
            return
        os.ftruncate(self._file, self._size)
        file, self._file = self._file, None
        self._file_in.end_file(self._name, file, self._entry.mode & 0o777, self._entry.modified_at)
        self._file_in.close()
        self._file_in = None

    def _make_link(self, parts: tuple[str, ...], target: str) -> None:
        if not target or "\0" in target or len(os.fsencode(target)) > _PATH_BYTES:
            raise AgentError(f"the archive from the sandbox has a bad symbolic link: {'/'.join(parts)!r}")
        if not self._limits.outside_links and _leads_out(parts, target):
            return
        with self._parent(parts) as parent:
            if not parent.has_links:
                return
            self._clear(parent, parts[-1])
            parent.symlink(parts[-1], target)

    def _make_hard_link(self, parts: tuple[str, ...], target: tuple[str, ...]) -> None:
        if parts == target:
            return
        if not target:
            raise _links_out(parts, target)
        with self._parent(target) as source, self._parent(parts) as parent:
            try:
                found = source.stat(target[-1])
            except FileNotFoundError:
                raise _links_out(parts, target) from None
            if _made(found) not in self._files:
                raise _links_out(parts, target)
            self._clear(parent, parts[-1])
            self._files.add(_made(found))
            parent.link(parts[-1], source, target[-1])


def write_sparse(file: int, data: bytes) -> None:
    """Append to a file, but leave a hole where all of ``data`` is zeroes.

    Truncate the file to its length at the end. A guest's sparse file arrives as zeroes, in any number.
    """
    if len(data) >= _HOLE_BYTES and _ZEROES.startswith(data):
        os.lseek(file, len(data), os.SEEK_CUR)
        return
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _made(status: os.stat_result) -> _Made:
    return _Made(status.st_dev, status.st_ino)


def _links_out(parts: tuple[str, ...], target: tuple[str, ...]) -> AgentError:
    return AgentError(
        f"the archive from the sandbox links {'/'.join(parts)!r} to {'/'.join(target)!r}, which is not a file in it"
    )


def _parts(name: str) -> tuple[str, ...]:
    """Return the components of an entry's name.

    Raises:
        AgentError: The name leads out of the tree, or is too long.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise AgentError(f"the archive from the sandbox has an entry that leads out of it: {name[:200]!r}")
    too_long = len(os.fsencode(name)) > _PATH_BYTES
    if too_long or len(parts) > _DEPTH or any(len(os.fsencode(part)) > _NAME_BYTES for part in parts):
        raise AgentError(f"the archive from the sandbox has a name that is too long: {name[:200]!r}")
    return parts


def _leads_out(parts: tuple[str, ...], target: str) -> bool:
    """Tell whether a link at ``parts`` leads out of the tree, judged by names alone."""
    if target.startswith("/"):
        return True
    depth = len(parts) - 1
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False
