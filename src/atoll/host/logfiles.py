"""Keeps log files small that other processes have open and append to, without moving their content."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.host.syscalls import punch_hole

_SECTOR_BYTES = 512
# A multiple of every file system's block size: a hole in part of a block would only zero it.
_BLOCK_BYTES = 1 << 16


def append_log(path: Path, line: str) -> None:
    """Add one line at the end, in one write. A symlink, or anything but a plain file, is refused.

    Raises:
        OSError: It could not be written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, f"{line}\n".encode(errors="backslashreplace"))
    finally:
        os.close(fd)


def forget_log_head(path: Path, *, most_bytes: int, keep_bytes: int) -> bool:
    """Free the disk space of a log larger than ``most_bytes``, except its newest ``keep_bytes``.

    The rest stays at its offset: writers continue to append, and readers continue where they were.

    Returns:
        Whether the log was larger. A missing log is small.

    Raises:
        OSError: The file system cannot make holes.
    """
    try:
        if path.lstat().st_blocks * _SECTOR_BYTES <= most_bytes:
            return False
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        end = (os.fstat(fd).st_size - keep_bytes) // _BLOCK_BYTES * _BLOCK_BYTES
        if end > 0:
            punch_hole(fd, 0, end)
    finally:
        os.close(fd)
    return True


def read_log(path: Path, offset: int, most_bytes: int) -> tuple[bytes, int]:
    """Return some bytes from an offset on, and the offset of the first of them.

    The returned offset is past the freed part, at the start of a line. A missing log, or an offset past the
    end, gives no bytes.
    """
    offset = max(offset, 0)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b"", offset
    try:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError:  # nothing has been written yet
            return b"", offset
        data = os.pread(fd, most_bytes, start)
    finally:
        os.close(fd)
    if start > offset:
        cut = data.find(b"\n") + 1
        return data[cut:], start + cut
    return data, start
