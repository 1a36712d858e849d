"""Opens an untrusted directory tree, which others may change, as if it were the whole file system.

No content or change of the tree makes it touch or report anything outside. It opens no pipe or device. It
follows symlinks only within the tree, absolute ones from the top.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from atoll.host import syscalls
from atoll.host.files import sync_directory
from atoll.host.trees.whole import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_DIRECTORY
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_ALL_MAY = 0o666


class RootedEntry(NamedTuple):
    """An entry of the tree: its path from the top, its kernel status, and the target of a symlink."""

    path: str
    status: os.stat_result
    target: str | None


class Owner(NamedTuple):
    """A user and a group by number; None means the caller's default."""

    uid: int | None = None
    gid: int | None = None


class RootedTree:
    """An untrusted tree; see the module. All methods block, and raise OSError when the kernel refuses.

    Paths are absolute and normal: ``/a/b``; ``/`` is the top.

    Args:
        top: The tree, which untrusted processes can reach.
        aside: A directory next to it, on the same file system, out of their reach; made when needed.
        default: The owner of new files without another given owner.
    """

    def __init__(self, top: Path, aside: Path, default: tuple[int, int]) -> None:
        self._top = top
        self._aside = aside
        self._default = default

    def stat(self, path: str) -> RootedEntry:
        """Return the entry with that path; a symlink is not followed."""
        if path == "/":
            with self._opened() as top:
                return RootedEntry(path, os.fstat(top), None)
        with self._above(path) as (directory, name):
            return _seen(directory, name, path)

    def list(self, path: str, *, depth: int, most: int, most_chars: int) -> list[RootedEntry]:
        """List everything below a directory, to a depth of ``depth`` levels, in lexical order.

        Names that vanish meanwhile are left out.

        Args:
            most: The most entries allowed.
            most_chars: The most characters that their paths and targets may have together.

        Raises:
            OSError: The path is no directory; EFBIG: the listing exceeds a limit.
        """
        listing = _Listing(path, most, most_chars)
        with self._opened() as top:
            fd = syscalls.open_in_root(top, path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                listing.add(fd, path.rstrip("/"), depth)
            finally:
                os.close(fd)
        return listing.found

    def make_directory(self, path: str, *, parents: bool, mode: int | None, owner: Owner) -> RootedEntry:
        """Make a directory. With ``parents`` also make missing parents, and accept an existing directory."""
        if path == "/":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if parents:
            self._make_above(path, owner)
        with self._above(path) as (directory, name):
            try:
                self._make_one(directory, name, _DIRECTORY_MODE if mode is None else mode, owner)
            except FileExistsError:
                if not parents or not self._is_directory(path):
                    raise
            return _seen(directory, name, path)

    def open_file(self, path: str) -> int:
        """Open a regular file for reading, also through a symlink, and return its descriptor.

        Raises:
            OSError: EISDIR: the path is a directory; EINVAL: it is a pipe, a socket or a device.
        """
        with self._opened() as top:
            place = syscalls.open_in_root(top, path, os.O_PATH)
        try:
            kind = os.fstat(place).st_mode
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat.S_ISREG(kind):
                raise OSError(errno.EINVAL, "it is not a regular file", path)
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(place)

    def begin_file(self) -> tuple[Path, int]:
        """Make a new file aside and return it with its descriptor.

        Write it, then pass it to ``end_file`` or unlink it.
        """
        self._aside.mkdir(mode=0o700, exist_ok=True)
        path = self._aside / secrets.token_hex(16)
        return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def end_file(
        self, written: tuple[Path, int], path: str, *, replace: bool, mode: int | None, owner: Owner
    ) -> RootedEntry:
        """Give a written file its name, atomically and durably.

        It takes mode and owner from the file that it replaces.

        Raises:
            OSError: EEXIST: something has the name, without ``replace``; EISDIR: a directory has it.
        """
        aside, fd = written
        if path == "/":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with self._above(path) as (directory, name):
            old = _regular(directory, name)
            if old is not None:
                owner = Owner(
                    old.st_uid if owner.uid is None else owner.uid,
                    old.st_gid if owner.gid is None else owner.gid,
                )
                mode = stat.S_IMODE(old.st_mode) if mode is None else mode
            self._own(fd, _FILE_MODE if mode is None else mode, owner)
            os.fsync(fd)
            if replace:
                os.rename(aside, name, dst_dir_fd=directory)
            else:
                os.link(aside, name, dst_dir_fd=directory, follow_symlinks=False)
                aside.unlink()
            _sync(directory)
            return _seen(directory, name, path)

    def make_above(self, path: str, owner: Owner) -> None:
        """Make the missing directories above a path."""
        self._make_above(path, owner)

    def set_attributes(self, path: str, *, mode: int | None, owner: Owner) -> RootedEntry:
        """Change mode and owner of a file or directory; None leaves them unchanged.

        Raises:
            OSError: EINVAL: the path is neither, or there is no such user here.
        """
        with self._opened() as top:
            place = syscalls.open_in_root(top, path, os.O_PATH | os.O_NOFOLLOW)
        try:
            status = os.fstat(place)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise OSError(errno.EINVAL, "it is neither a file nor a directory", path)
            itself = f"/proc/self/fd/{place}"
            if owner != Owner():
                uid, gid = (-1 if number is None else number for number in owner)
                os.chown(itself, uid, gid)
                # The change of the owner has removed the setuid bit.
                mode = stat.S_IMODE(status.st_mode) if mode is None else mode
            if mode is not None:
                os.chmod(itself, mode)
            return RootedEntry(path, os.fstat(place), None)
        finally:
            os.close(place)

    def remove(self, path: str) -> None:
        """Remove the entry with that path and everything in it.

        The name is gone at once, the files soon after.
        """
        if path == "/":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        self._aside.mkdir(mode=0o700, exist_ok=True)
        aside = self._aside / secrets.token_hex(16)
        with self._above(path) as (directory, name):
            os.rename(name, aside, src_dir_fd=directory)
            _sync(directory)
        # A process that is still in such a directory may add to it. The rest goes when the tree is no longer
        # used.
        with contextlib.suppress(OSError):
            remove_tree(aside)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        fd = os.open(self._top, _DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _above(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the directory that has the last part of the path, and that part."""
        above, _, name = path.rpartition("/")
        with self._opened() as top:
            fd = syscalls.open_in_root(top, above or "/", _PLACE)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _is_directory(self, path: str) -> bool:
        with self._opened() as top:
            try:
                os.close(syscalls.open_in_root(top, path, _PLACE))
            except OSError:
                return False
        return True

    def _make_above(self, path: str, owner: Owner) -> None:
        parts = path.strip("/").split("/")[:-1]
        for count in range(1, len(parts) + 1):
            here = "/" + "/".join(parts[:count])
            if self._is_directory(here):
                continue
            with self._above(here) as (directory, name), contextlib.suppress(FileExistsError):
                self._make_one(directory, name, _DIRECTORY_MODE, owner)

    def _make_one(self, directory: int, name: str, mode: int, owner: Owner) -> None:
        os.mkdir(name, 0o700, dir_fd=directory)
        fd = os.open(name, _DIRECTORY, dir_fd=directory)
        try:
            self._own(fd, mode, owner)
        finally:
            os.close(fd)
        _sync(directory)

    def _own(self, fd: int, mode: int, owner: Owner) -> None:
        """Set owner and mode of a new file or directory. Where only root exists here, everyone may use it."""
        uid = self._default[0] if owner.uid is None else owner.uid
        gid = self._default[1] if owner.gid is None else owner.gid
        try:
            os.fchown(fd, uid, gid)
        except OSError as error:
            if error.errno != errno.EINVAL or owner != Owner():
                raise
            mode |= _ALL_MAY | (mode >> 2 & 0o111)
        os.fchmod(fd, mode)


def _seen(directory: int, name: str, path: str) -> RootedEntry:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    target = None
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(name, dir_fd=directory)
    return RootedEntry(path, status, target)


def _regular(directory: int, name: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


class _Listing:
    """Collects the entries below a directory, up to the limits.

    Deep paths count most, because each repeats the names above it.
    """

    def __init__(self, path: str, most: int, most_chars: int) -> None:
        self.found: list[RootedEntry] = []
        self._path = path
        self._most = most
        self._most_chars = most_chars
        self._entries = 0
        self._chars = 0

    def add(self, fd: int, path: str, depth: int) -> None:
        for name in self._names(fd, path):
            try:
                seen = _seen(fd, name, f"{path}/{name}")
            except OSError:  # it has vanished meanwhile
                continue
            self._count(0, len(seen.target or ""))
            self.found.append(seen)
            if depth > 1 and stat.S_ISDIR(seen.status.st_mode):
                try:
                    deeper = os.open(name, _DIRECTORY, dir_fd=fd)
                except OSError:  # somebody has replaced it meanwhile
                    continue
                try:
                    self.add(deeper, seen.path, depth - 1)
                finally:
                    os.close(deeper)

    def _names(self, fd: int, path: str) -> list[str]:
        names = []
        with os.scandir(fd) as entries:
            for entry in entries:
                # Counted now, because the paths of all directories above stay in memory while a deep one is
                # read.
                self._count(1, len(path) + 1 + len(entry.name))
                names.append(entry.name)
        return sorted(names)

    def _count(self, entries: int, chars: int) -> None:
        self._entries += entries
        self._chars += chars
        if self._entries > self._most:
            raise OSError(errno.EFBIG, f"it has more than {self._most} entries", self._path)
        if self._chars > self._most_chars:
            raise OSError(errno.EFBIG, f"its paths have more than {self._most_chars} characters", self._path)


def _sync(directory: int) -> None:
    sync_directory(Path(f"/proc/self/fd/{directory}"))
