"""Repairs damaged stored files from a second copy. It removes nothing and guesses nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from atoll.host import open_below, open_top
from atoll.supervisor.integrity.checksums import PARTLY_BYTES, differs, recorded
from atoll.types import Damage

_ASIDE = ".repaired"
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def mend_checkpoint(checkpoint: Path, others: Iterable[Path]) -> int:
    """Replace damaged files of a checkpoint by undamaged ones of other checkpoints with the same checksum.

    Both checkpoints then share one file on the disk, which never changes. Returns the number of replaced
    files. A file whose checksum does not cover all of it is left alone. Blocks.

    Raises:
        OSError: The disk is full or broken.
    """
    mended = 0
    others = [other for other in others if other != checkpoint]
    for name, (size, wanted) in recorded(checkpoint).items():
        if size > PARTLY_BYTES or not differs(checkpoint / name, size, wanted):
            continue
        for other in others:
            same = recorded(other).get(name) == (size, wanted)
            if same and not differs(other / name, size, wanted):
                aside = checkpoint / _ASIDE
                aside.unlink(missing_ok=True)
                os.link(other / name, aside)
                os.rename(aside, checkpoint / name)
                mended += 1
                break
    return mended


def mend_tree(tree: Path, damages: Iterable[Damage], source: Path) -> None:
    """Write the content of damaged files again, from an undamaged tree with the same content. Blocks.

    Files keep their inodes, so disks that stand on the tree go on. No link is followed.

    Raises:
        OSError: The disk is full or broken.
    """
    with open_top(tree) as into, open_top(source) as out_of:
        for damage in damages:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _mend(into, out_of, damage.path)


def _mend(into: int, out_of: int, path: str) -> None:
    at, _, name = path.rpartition("/")
    with open_below(into, at) as target, open_below(out_of, at) as source:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            return
        good = os.open(name, os.O_RDONLY | _FILE, dir_fd=source)
        with open(good, "rb") as reader:
            bad = os.open(name, os.O_WRONLY | os.O_CREAT | _FILE, 0o600, dir_fd=target)
            with open(bad, "wb", buffering=0) as writer:
                if not stat.S_ISREG(os.fstat(bad).st_mode):
                    return
                os.ftruncate(bad, 0)
                shutil.copyfileobj(reader, writer, 1 << 20)
                os.fchown(bad, found.st_uid, found.st_gid)
                os.fchmod(bad, stat.S_IMODE(found.st_mode))
                os.utime(bad, ns=(found.st_atime_ns, found.st_mtime_ns))
                os.fsync(bad)
