"""Packs a directory of the host as a tar, piece by piece."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from atoll.sdk._bytes import CHUNK_BYTES, sliced

Entry = tuple[str, str, os.stat_result]
_BLOCK = 512


def tree_bytes(root: Path) -> int:
    """Return the sum of the sizes of the regular files below ``root``. Symbolic links are not followed."""
    return sum(status.st_size for _, _, status in walk(root) if stat.S_ISREG(status.st_mode))


def packed(root: Path) -> Iterator[tuple[bytes, int]]:
    """Pack the content of ``root`` as ``packed_entries`` does."""
    return packed_entries(walk(root))


def packed_entries(entries: Iterable[Entry]) -> Iterator[tuple[bytes, int]]:
    """Pack files as a pax tar, in pieces that suit sockets.

    Each piece comes with the number of bytes of file content up to its end. Symbolic links stay links;
    sockets, pipes and devices are left out. A file that shrinks meanwhile is filled with zeros, one that
    grows is cut, and one that disappears is left out.
    """
    gathered, size, done = [], 0, 0
    for piece, done in _parts(entries):
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(gathered), done
            gathered, size = [], 0
    yield b"".join(gathered), done


def _parts(entries: Iterable[Entry]) -> Iterator[tuple[bytes, int]]:
    """Iterate over the headers, contents and paddings, in pieces of any size."""
    import tarfile

    done = 0
    for path, name, status in entries:
        info = tarfile.TarInfo(name)
        info.mode = stat.S_IMODE(status.st_mode)
        info.mtime = status.st_mtime
        if stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            try:
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            except FileNotFoundError:
                continue
        elif stat.S_ISREG(status.st_mode):
            info.size = status.st_size
        else:
            continue
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if not stat.S_ISREG(status.st_mode):
            yield header, done
            continue
        for piece, count in _file(path, header, status.st_size):
            done += count
            yield piece, done
    yield bytes(2 * _BLOCK), done


def walk(root: Path) -> Iterator[Entry]:
    """Iterate over everything below a directory: path, name in it and status.

    Symbolic links are not followed. What disappears meanwhile is left out, but the directory itself must
    exist.
    """
    waiting = [(os.fspath(root), "")]
    while waiting:
        directory, prefix = waiting.pop()
        try:
            with os.scandir(directory) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            if not prefix:
                raise
            continue
        for entry in entries:
            name = f"{prefix}{entry.name}"
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield entry.path, name, status
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, f"{name}/"))


def _file(path: str, header: bytes, size: int) -> Iterator[tuple[bytes, int]]:
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115
    except FileNotFoundError:
        return
    with file:
        yield header, 0
        left = size
        while left:
            piece = file.read(min(CHUNK_BYTES, left)) or bytes(min(CHUNK_BYTES, left))
            left -= len(piece)
            yield piece, len(piece)
    if size % _BLOCK:
        yield bytes(_BLOCK - size % _BLOCK), 0


def packed_files(files: Iterable[tuple[str, bytes]], mode: int) -> Iterator[bytes]:
    """Pack files that are in memory, by their names, as a pax tar in pieces that suit sockets."""
    import tarfile

    gathered, size = [], 0
    for name, data in files:
        info = tarfile.TarInfo(name)
        info.mode, info.size = mode, len(data)
        head = info.tobuf(tarfile.PAX_FORMAT)
        padding = bytes(-len(data) % _BLOCK)
        for piece in (head, *(sliced(data) if len(data) > CHUNK_BYTES else (data,)), padding):
            gathered.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    yield b"".join(gathered) + bytes(2 * _BLOCK)
