"""The files of a log: each is named by the sequence of its first entry."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"([0-9]{16})\.jsonl")


def file_for(directory: Path, sequence: int) -> Path:
    """Return the path of the file whose first entry has this sequence."""
    return directory / f"{sequence:016d}.jsonl"


def first_of(path: Path) -> int:
    """Return the sequence of the first entry of a file, as its name says."""
    return int(path.stem)


def log_files(directory: Path) -> list[Path]:
    """Return the files of a log, the oldest first.

    Raises:
        OSError: The directory cannot be read.
    """
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def opened(path: Path) -> int:
    """Open a file of a log to append to it. The caller owns the descriptor.

    Raises:
        OSError: It cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)
