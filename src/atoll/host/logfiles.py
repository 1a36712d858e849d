"""Log files that others hold open and append to, kept small without moving what they write."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.host.syscalls import punch_hole

_SECTOR_BYTES = 512
# Whole blocks of any file system: parts of one would only be zeroed.
_BLOCK_BYTES = 1 << 16


def append_log(path: Path, line: str) -> None:
    """Add one line at the end, in one write. A symlink or anything but a plain file is refused.

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
    """Give the disk back all but the newest ``keep_bytes`` of a log that takes more than ``most_bytes`` of it.

    What remains stays at its offset: writers go on appending, and readers at where they were.

    Returns:
        Whether there was too much. A log that is not there is small.

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
    """Some bytes from an offset on, and the offset of the first: past what was forgotten, at the start of a line.

    Nothing is read of a log that is not there, nor past its end.
    """
    offset = max(offset, 0)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b"", offset
    try:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError:  # nothing is written there yet
            return b"", offset
        data = os.pread(fd, most_bytes, start)
    finally:
        os.close(fd)
    if start > offset:
        cut = data.find(b"\n") + 1
        return data[cut:], start + cut
    return data, start
