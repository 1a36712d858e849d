"""How much is in a tree, counted as the limits of a disk count."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

from atoll.host.trees import open_below, open_top

_PAGE_BYTES = 4096


class TreeUse(NamedTuple):
    """The sizes of its files in pages, holes included, and a page for each name; and how many names it has."""

    size_bytes: int
    files: int


def tree_use(path: Path) -> TreeUse:
    """How much is in a tree, itself not counted; the size of a file with several names counts once. What vanishes
    is left out.
    """
    pages = files = 0
    linked: set[int] = set()
    with open_top(path) as top:
        waiting = [""]
        while waiting:
            at = waiting.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_below(top, at) as fd:
                for found, name in _entries(fd):
                    files += 1
                    pages += 1
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(f"{at}/{name}" if at else name)
                    elif found.st_nlink > 1:
                        if found.st_ino in linked:
                            continue
                        linked.add(found.st_ino)
                    pages += -(-found.st_size // _PAGE_BYTES) if stat.S_ISREG(found.st_mode) else 0
    return TreeUse(pages * _PAGE_BYTES, files)


def _entries(fd: int) -> list[tuple[os.stat_result, str]]:
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                found.append((entry.stat(follow_symlinks=False), entry.name))
    return found
