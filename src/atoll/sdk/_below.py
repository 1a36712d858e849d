"""Directories of this machine, in which a hostile archive is unpacked: step by step, through no symbolic link.

Linux and macOS hold each one open, so nobody can exchange it meanwhile. Windows has only paths. There no link is
made, so an archive cannot lead out of the directory that it goes to.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Protocol

from atoll.errors import FileError

_OPEN = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NEW |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# characters, ends and names that mean something else to Windows
_NO_NAME = re.compile(
    r'.*[<>:"|?*\\\x00-\x1f].*|.*[ .]|(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(\..*)?',
    re.IGNORECASE | re.DOTALL,
)
_REPARSE_POINT = 0x400
_HOLDS = os.open in os.supports_dir_fd


class Directory(Protocol):
    """A directory. Whoever gets one closes it.

    Attributes:
        has_links: Whether an archive may make symbolic links in it.
    """

    has_links: bool

    def make(self, name: str) -> None:
        """Make a directory in it.

        Raises:
            FileExistsError: Something has the name.
        """

    def enter(self, name: str) -> Directory:
        """Return a directory in it.

        Raises:
            OSError: It is no directory.
        """

    def again(self) -> Directory:
        """Return this directory once more."""

    def stat(self, name: str) -> os.stat_result:
        """Return the status of what has the name. No link is followed."""

    def unlink(self, name: str) -> None:
        """Remove a file or a link."""

    def new_file(self, name: str) -> int:
        """Make a file, and return its descriptor."""

    def end_file(self, name: str, file: int, mode: int, modified_at: float) -> None:
        """Give a file of ``new_file`` its mode and time, and close it."""

    def symlink(self, name: str, target: str) -> None:
        """Make a symbolic link. Only if ``has_links``."""

    def link(self, name: str, source: Directory, old: str) -> None:
        """Give the file ``old`` in another directory a name in this one."""

    def set_look(self, mode: int, modified_at: float) -> None:
        """Give the directory its mode and time."""

    def close(self) -> None:
        """Close it."""


def opened(root: Path) -> Directory:
    """Open the directory that an archive goes to."""
    return (
        _Opened(os.open(root, _OPEN & ~getattr(os, "O_NOFOLLOW", 0))) if _HOLDS else _Named(os.fspath(root))
    )


class _Opened:
    has_links = True

    def __init__(self, descriptor: int) -> None:
        self._at = descriptor

    def make(self, name: str) -> None:
        os.mkdir(name, 0o755, dir_fd=self._at)

    def enter(self, name: str) -> _Opened:
        return _Opened(os.open(name, _OPEN, dir_fd=self._at))

    def again(self) -> _Opened:
        return _Opened(os.dup(self._at))

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._at, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._at)

    def new_file(self, name: str) -> int:
        return os.open(name, _NEW, 0o600, dir_fd=self._at)

    def end_file(self, name: str, file: int, mode: int, modified_at: float) -> None:
        del name
        try:
            os.fchmod(file, mode)
            os.utime(file, (modified_at, modified_at))
        finally:
            os.close(file)

    def symlink(self, name: str, target: str) -> None:
        os.symlink(target, name, dir_fd=self._at)

    def link(self, name: str, source: Directory, old: str) -> None:
        assert isinstance(source, _Opened)
        os.link(old, name, src_dir_fd=source._at, dst_dir_fd=self._at, follow_symlinks=False)

    def set_look(self, mode: int, modified_at: float) -> None:
        os.fchmod(self._at, mode)
        os.utime(self._at, (modified_at, modified_at))

    def close(self) -> None:
        os.close(self._at)


class _Named:
    """A directory of Windows, which knows no modes."""

    has_links = False

    def __init__(self, path: str) -> None:
        self._path = path

    def _of(self, name: str) -> str:
        if _NO_NAME.fullmatch(name):
            raise FileError(
                f"{name!r} cannot be the name of a file on Windows", hint="download the tree as an archive"
            )
        return os.path.join(self._path, name)

    def make(self, name: str) -> None:
        os.mkdir(self._of(name))

    def enter(self, name: str) -> _Named:
        if name == ".":
            return self
        path = self._of(name)
        found = os.lstat(path)
        # a junction is a directory, too
        if not stat.S_ISDIR(found.st_mode) or getattr(found, "st_file_attributes", 0) & _REPARSE_POINT:
            raise NotADirectoryError(f"{path} is no directory")
        return _Named(path)

    def again(self) -> _Named:
        return self

    def stat(self, name: str) -> os.stat_result:
        return os.lstat(self._of(name))

    def unlink(self, name: str) -> None:
        path = self._of(name)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            raise IsADirectoryError(f"{path} is a directory")
        os.unlink(path)

    def new_file(self, name: str) -> int:
        return os.open(self._of(name), _NEW, 0o600)

    def end_file(self, name: str, file: int, mode: int, modified_at: float) -> None:
        del mode
        # while it is open, its end would change the time once more
        os.close(file)
        os.utime(self._of(name), (modified_at, modified_at))

    def symlink(self, name: str, target: str) -> None:
        raise NotImplementedError

    def link(self, name: str, source: Directory, old: str) -> None:
        assert isinstance(source, _Named)
        os.link(source._of(old), self._of(name))

    def set_look(self, mode: int, modified_at: float) -> None:
        del mode
        os.utime(self._path, (modified_at, modified_at))

    def close(self) -> None:
        pass
