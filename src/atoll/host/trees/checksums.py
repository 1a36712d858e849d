"""Checksum files of trees.

A file records each entry and has its own checksum; a later check compares the tree with it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from atoll.host.trees.facts import Entry, Facts, Pace, TreeDirectory, walk_tree
from atoll.host.trees.whole import open_below, open_top
from atoll.types import Damage
from atoll.types.internal import msgpack_reader

_MAGIC = b"atoll tree checksums 1\n"
# After the records: the number of entries, the bytes that were read of them, and the SHA-256 of all before.
_END = struct.Struct(">QQ32s")
_LENGTH = struct.Struct(">I")
_LONGEST_RECORD = 4096
_CHUNK_BYTES = 1 << 20
MOST_DAMAGES = 100
_LONGEST_PATH = 1000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_reader(Entry | TreeDirectory)


class CheckedTree(msgspec.Struct, frozen=True):
    """How much a checksum file covers, and how many of its entries are damaged.

    ``damages`` has the first of them.
    """

    entries: int
    size_bytes: int
    damages: list[Damage] = []
    damaged: int = 0


class BrokenChecksumsError(Exception):
    """A checksum file is damaged."""


def write_checksums(tree: Path, checksums: Path, pace: Pace) -> CheckedTree:
    """Record the entries of a tree, which must not change. The file is on the disk when this returns.

    Raises:
        OSError: Something cannot be read, or the checksum file cannot be written.
    """
    total = hashlib.sha256(_MAGIC)
    entries = 0
    with open_top(tree) as top, checksums.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(_MAGIC)
        for record in walk_tree(top, Facts(pace)):
            entries += isinstance(record, Entry)
            data = _encode(record)
            for part in (_LENGTH.pack(len(data)), data):
                file.write(part)
                total.update(part)
        counts = struct.pack(">QQ", entries, pace.read_bytes)
        total.update(counts)
        file.write(counts + total.digest())
        file.flush()
        os.fsync(file.fileno())
    return CheckedTree(entries, pace.read_bytes)


def checksummed_bytes(checksums: Path) -> int:
    """Return how many bytes a check of the tree reads; 0 if that is unknown."""
    try:
        with checksums.open("rb") as file:
            file.seek(-_END.size, os.SEEK_END)
            return int(_END.unpack(file.read(_END.size))[1])
    except (OSError, struct.error):
        return 0


def verify_checksums(tree: Path, checksums: Path, pace: Pace) -> CheckedTree:
    """Compare a tree with its checksum file. The tree is read from the disk.

    Raises:
        BrokenChecksumsError: The checksum file itself is damaged, so nothing is known about the tree.
        OSError: The checksum file, or the top of the tree, cannot be read.
    """
    with checksums.open("rb") as file, open_top(tree) as top:
        entries, records_end = _whole(file)
        comparison = _Comparison(top, Facts(pace, from_disk=True))
        for record in _records(file, records_end):
            comparison.add(record)
        comparison.end()
    return CheckedTree(entries, pace.read_bytes, comparison.damages, comparison.damaged)


def _whole(file: BinaryIO) -> tuple[int, int]:
    """Return the number of entries in a checksum file, and where its records end."""
    end = os.fstat(file.fileno()).st_size - _END.size
    if end < len(_MAGIC) or file.read(len(_MAGIC)) != _MAGIC:
        raise BrokenChecksumsError("it is not a file of checksums")
    total = hashlib.sha256(_MAGIC)
    left = end - len(_MAGIC)
    while left:
        data = file.read(min(left, _CHUNK_BYTES))
        if not data:
            raise BrokenChecksumsError("it is shorter than it was")
        total.update(data)
        left -= len(data)
    tail = file.read(_END.size)
    total.update(tail[:16])
    if total.digest() != tail[16:]:
        raise BrokenChecksumsError("its content is not what atoll wrote")
    return int(_END.unpack(tail)[0]), end


def _records(file: BinaryIO, end: int) -> Iterator[Entry | TreeDirectory]:
    at = len(_MAGIC)
    file.seek(at)
    while at < end:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if length > _LONGEST_RECORD:
            raise BrokenChecksumsError("a record is too long")
        try:
            yield _decode(file.read(length))
        except msgspec.MsgspecError as error:
            raise BrokenChecksumsError(str(error)) from None
        at += _LENGTH.size + length


class _Comparison:
    """Compares a tree with the records of a checksum file as they are read, one directory at a time."""

    def __init__(self, top: int, facts: Facts) -> None:
        self._top = top
        self._facts = facts
        self._at: list[str] = []
        self._directory: int | None = None
        self._left: set[str] = set()
        self._links: dict[int, int] = {}
        self.damages: list[Damage] = []
        self.damaged = 0

    def add(self, record: Entry | TreeDirectory) -> None:
        """Compare the entry of one record."""
        if isinstance(record, TreeDirectory):
            self._leave()
            self._enter(record)
        elif not record.name:
            self._compare(self._top, ".", record, os.fstat(self._top))
        elif self._directory is not None:
            self._entry(self._directory, record)

    def end(self) -> None:
        """Finish after the last record."""
        self._leave()

    def _enter(self, group: TreeDirectory) -> None:
        if group.depth:
            self._at[group.depth - 1 :] = [os.fsdecode(group.name)]
        try:
            with open_below(self._top, "/".join(self._at)) as fd:
                self._left = set(os.listdir(fd))
                self._directory = os.dup(fd)
        except OSError as error:
            # A directory that is gone has been reported by its parent directory.
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                self._tell(None, f"it cannot be read: {error.strerror}")

    def _leave(self) -> None:
        if self._directory is None:
            return
        os.close(self._directory)
        self._directory = None
        for name in sorted(self._left):
            self._tell(name, "it was not there when atoll made the checksums")
        self._left = set()

    def _entry(self, directory: int, wanted: Entry) -> None:
        name = os.fsdecode(wanted.name)
        self._left.discard(name)
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            self._tell(name, "it is missing")
        except OSError as error:
            self._tell(name, f"it cannot be read: {error.strerror}")
        else:
            self._compare(directory, name, wanted, status)

    def _compare(self, directory: int, name: str, wanted: Entry, status: os.stat_result) -> None:
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(wanted.mode):
            self._tell(name, f"it is {_kind(status.st_mode)} instead of {_kind(wanted.mode)}")
            return
        again = self._links.setdefault(wanted.link, status.st_ino) if wanted.link else status.st_ino
        # A file of the wrong length need not be read.
        content = bool(wanted.content) and status.st_size == wanted.size
        try:
            found = self._facts.of(directory, name, status, link=wanted.link, content=content)
        except OSError as error:
            self._tell(name, f"it cannot be read: {error.strerror}")
            return
        told = list(_differences(wanted, found))
        if again != status.st_ino:
            told.append("its hard links have changed")
        if told:
            self._tell(name, "; ".join(told))

    def _tell(self, name: str | None, what: str) -> None:
        self.damaged += 1
        if len(self.damages) < MOST_DAMAGES:
            path = "/".join([*self._at, *([name] if name not in (None, ".") else [])])
            self.damages.append(Damage(path=_readable(path), what=what))


def _differences(wanted: Entry, found: Entry) -> Iterator[str]:
    if found.size != wanted.size:
        yield f"it has {found.size} bytes instead of {wanted.size}"
    elif found.content != wanted.content:
        yield "its content has changed"
    if found.device != wanted.device:
        yield "its device number has changed"
    if found.mode != wanted.mode:
        yield f"its mode is {stat.S_IMODE(found.mode):04o} instead of {stat.S_IMODE(wanted.mode):04o}"
    if found.owner != wanted.owner:
        yield "its owner is {}:{} instead of {}:{}".format(*found.owner, *wanted.owner)
    if found.modified != wanted.modified:
        yield "its modification time has changed"
    if found.attributes != wanted.attributes:
        yield "its extended attributes have changed"


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symlink",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _readable(path: str) -> str:
    """Return a path as text of limited length; bytes that are not text are spelled out."""
    text = os.fsencode(path or ".").decode("utf-8", "backslashreplace")
    return text if len(text) <= _LONGEST_PATH else f"…{text[-_LONGEST_PATH:]}"
