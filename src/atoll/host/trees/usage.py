"""The size of a tree, counted as the limits of a disk count it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from atoll.host.trees.whole import stats_below

_PAGE_BYTES = 4096


class TreeUse(NamedTuple):
    """The sizes of its files in pages, including holes, plus one page per name; and the number of names."""

    size_bytes: int
    files: int


def tree_use(path: Path) -> TreeUse:
    """Measure a tree without its top directory. A file with several names counts once.

    Files that vanish meanwhile are left out.
    """
    pages = files = 0
    linked: set[int] = set()
    for found in stats_below(path):
        files += 1
        pages += 1
        if not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1:
            if found.st_ino in linked:
                continue
            linked.add(found.st_ino)
        pages += -(-found.st_size // _PAGE_BYTES) if stat.S_ISREG(found.st_mode) else 0
    return TreeUse(pages * _PAGE_BYTES, files)
