"""Reads the entries of a tree in a fixed order, to write a checksum file or to compare with it."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

from atoll.host.trees.whole import open_below

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK_BYTES)
_DIGEST_BYTES = 16
# The cost of looking at a file, apart from its content.
_ENTRY_BYTES = 32 << 10
# The host's own labels, and the kernel's records for one mount of an overlay. Both may change with the place.
_NOT_KEPT = (
    "security.selinux",
    "security.SMACK64",
    "security.ima",
    "security.evm",
    *(
        f"{kind}.overlay.{note}"
        for kind in ("trusted", "user")
        for note in ("origin", "impure", "nlink", "uuid")
    ),
)
_SHORT_S = 0.01
_Told = TypeVar("_Told", covariant=True)


class Entry(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """A name in a directory, or the top itself if the name is empty.

    ``size`` and ``content`` are for regular files, ``content`` also for symlinks. Names of one file have the
    same ``link``, which is 0 for a file with one name; only the first name has the content. ``modified``
    is in seconds and nanoseconds, because a guest may set times that do not fit 64 bits of nanoseconds.
    """

    name: bytes
    mode: int
    owner: tuple[int, int]
    size: int
    modified: tuple[int, int]
    device: int
    link: int
    attributes: bytes
    content: bytes


class TreeDirectory(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """The directory of the entries that follow: its name, and its depth below the top."""

    depth: int
    name: bytes


class Pace:
    """Limits the rate of a reader.

    Args:
        bytes_s: Bytes per second; None means no limit.
        tell: Called from time to time with the number of bytes read so far.
    """

    def __init__(self, bytes_s: float | None = None, tell: Callable[[int], None] | None = None) -> None:
        self._bytes_s = bytes_s
        self._tell = tell
        self._began_s = self._told_s = time.monotonic()
        self._spent = 0
        self.read_bytes = 0

    def entry(self) -> None:
        """Count one entry."""
        self._spend(_ENTRY_BYTES)

    def read(self, count: int) -> None:
        """Count bytes that were read."""
        self.read_bytes += count
        self._spend(count)

    def _spend(self, count: int) -> None:
        self._spent += count
        now_s = time.monotonic()
        if self._tell and now_s - self._told_s > 0.5:
            self._told_s = now_s
            self._tell(self.read_bytes)
        if self._bytes_s:
            early_s = self._began_s + self._spent / self._bytes_s - now_s
            if early_s > _SHORT_S:
                time.sleep(early_s)


class Facts:
    """Reads entries. Fifos, sockets and devices are never opened.

    Args:
        pace: Counts everything that is read.
        from_disk: Read from the disk, not from the page cache.
    """

    def __init__(self, pace: Pace, *, from_disk: bool = False) -> None:
        self._pace = pace
        self._from_disk = from_disk

    def of(self, directory: int, name: str, status: os.stat_result, *, link: int, content: bool) -> Entry:
        """Return the facts about a name in a directory, which is given by its descriptor.

        Args:
            status: The entry's status from the kernel.
            link: See ``Entry``.
            content: Whether to read its content.

        Raises:
            OSError: It cannot be read.
        """
        self._pace.entry()
        digest = b""
        if stat.S_ISLNK(status.st_mode):
            digest = _digest(hashlib.sha256(os.fsencode(os.readlink(name, dir_fd=directory))))
        elif stat.S_ISREG(status.st_mode) and content:
            digest = self._content(directory, name)
        return Entry(
            name=os.fsencode(name) if name != "." else b"",
            mode=status.st_mode,
            owner=(status.st_uid, status.st_gid),
            size=status.st_size if stat.S_ISREG(status.st_mode) else 0,
            modified=divmod(status.st_mtime_ns, 10**9),
            device=status.st_rdev if _is_device(status) else 0,
            link=link,
            attributes=_attributes(f"/proc/self/fd/{directory}/{name}"),
            content=digest,
        )

    def _content(self, directory: int, name: str) -> bytes:
        """Return a digest of the blocks that are not all zeros, each with its place.

        Holes cost nothing and do not count.
        """
        fd = os.open(name, _READ, dir_fd=directory)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "it was replaced meanwhile", name)
            if self._from_disk:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            total = hashlib.sha256()
            for at in _blocks(fd, status.st_size):
                data = _read_block(fd, at)
                self._pace.read(len(data))
                if data != _ZEROS[: len(data)]:
                    total.update(at.to_bytes(8, "big"))
                    total.update(data)
            return _digest(total)
        finally:
            os.close(fd)


class TellsEntries(Protocol[_Told]):
    """Tells about the entries that ``walk_tree`` meets."""

    def of(self, directory: int, name: str, status: os.stat_result, *, link: int, content: bool) -> _Told:
        """Return something about an entry, see ``Facts.of``."""
        ...


def walk_tree(top: int, facts: TellsEntries[_Told]) -> Iterator[TreeDirectory | _Told]:
    """Yield the top itself, then each directory followed by its entries, in the order of names.

    Memory holds only the names of directories on the way, and the numbers of files with several names.

    Raises:
        OSError: Something cannot be read.
    """
    links = _Links()
    yield facts.of(top, ".", os.fstat(top), link=0, content=False)
    at: list[str] = []
    waiting: list[list[str]] = []
    name: str | None = ""
    while name is not None:
        yield TreeDirectory(len(at), os.fsencode(name))
        deeper: list[str] = []
        with open_below(top, "/".join(at)) as directory:
            for each in sorted(os.listdir(directory)):
                status = os.stat(each, dir_fd=directory, follow_symlinks=False)
                link, first = links.of(status)
                yield facts.of(directory, each, status, link=link, content=first)
                if stat.S_ISDIR(status.st_mode):
                    deeper.append(each)
        waiting.append(deeper[::-1])
        name = _next(waiting, at)


def _next(waiting: list[list[str]], at: list[str]) -> str | None:
    """Move ``at`` to the next directory and return its name; None if none is left."""
    while not waiting[-1]:
        waiting.pop()
        if not waiting:
            return None
        at.pop()
    name = waiting[-1].pop()
    at.append(name)
    return name


class _Links:
    """Numbers files that have several names; each number is forgotten with the last name."""

    def __init__(self) -> None:
        self._known: dict[int, list[int]] = {}
        self._count = 0

    def of(self, status: os.stat_result) -> tuple[int, bool]:
        """Return the file's number, and whether this is the first of its names."""
        if not _has_links(status):
            return 0, True
        known = self._known.get(status.st_ino)
        if known is None:
            self._count += 1
            self._known[status.st_ino] = [self._count, status.st_nlink - 1]
            return self._count, True
        known[1] -= 1
        if not known[1]:
            del self._known[status.st_ino]
        return known[0], False


def _has_links(status: os.stat_result) -> bool:
    """Whether a file has several names that matter. The whiteouts of an overlay are one file by chance."""
    whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
    return status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode) and not whiteout


def _blocks(fd: int, size: int) -> Iterator[int]:
    """Yield the positions of blocks that are not holes."""
    at = 0
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno != errno.EINVAL:  # this file system does not report holes
                raise
        at -= at % _BLOCK_BYTES
        yield at
        at += _BLOCK_BYTES


def _read_block(fd: int, at: int) -> bytes:
    data = os.pread(fd, _BLOCK_BYTES, at)
    while 0 < len(data) < _BLOCK_BYTES and (more := os.pread(fd, _BLOCK_BYTES - len(data), at + len(data))):
        data += more
    return data


def attributes_of(place: str) -> dict[str, bytes]:
    """Return the extended attributes that matter of a file, a symlink itself included, in the order of names."""
    try:
        names = sorted(set(os.listxattr(place, follow_symlinks=False)).difference(_NOT_KEPT))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return {}
    return {name: os.getxattr(place, name, follow_symlinks=False) for name in names}


def _attributes(place: str) -> bytes:
    """Return a digest of the extended attributes that matter; empty if there are none."""
    attributes = attributes_of(place)
    if not attributes:
        return b""
    total = hashlib.sha256()
    for name, value in attributes.items():
        for part in (os.fsencode(name), value):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
    return _digest(total)


def _digest(total: hashlib._Hash) -> bytes:
    return total.digest()[:_DIGEST_BYTES]


def _is_device(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
