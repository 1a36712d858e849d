"""Earlier pages: the files of earlier checkpoints that a checkpoint refers to, instead of writing pages again."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from atoll.engines.gvisor.checkpoint_files import NAMES

_NAME = re.compile(r"pages-([1-9][0-9]{0,3})\.img")


def earlier_pages_in(checkpoint: Path) -> dict[int, Path]:
    """Return the earlier files that a checkpoint refers to, in order. The sentry knows them by these numbers."""
    found = {int(name[1]): path for path in checkpoint.iterdir() if (name := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


class EarlierPages:
    """The files that the next checkpoint of a machine may refer to.

    They are hard links, so a checkpoint has all that it needs in its own directory. Its page map, which only
    the sentry reads, says which pages are in which of them. The sentry recognises a file by its inode. So a
    file too many or too few in the directory costs space, but never a page.

    Args:
        directory: The place of the files while the machine runs; None if its checkpoints refer to none.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    def keep(self, checkpoint: Path | None) -> None:
        """Have the next checkpoint refer to this one's pages and earlier pages. None refers to nothing.

        Where the file system cannot link them, the next checkpoint refers to nothing.
        """
        if self.directory is None:
            return
        aside = self.directory.with_name(f"{self.directory.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        if checkpoint is None:
            return
        try:
            aside.mkdir(mode=0o700)
            _link_all(checkpoint, aside)
            aside.rename(self.directory)
        except OSError:
            # On another file system, on a full disk, or with as many links as it allows.
            shutil.rmtree(aside, ignore_errors=True)

    def offer(self, into: Path) -> list[Path]:
        """Link the files into the directory of a new checkpoint, and return them in order."""
        if self.directory is None or not self.directory.is_dir():
            return []
        offered = []
        try:
            for number, path in enumerate(earlier_pages_in(self.directory).values(), start=1):
                offered.append(into / f"pages-{number}.img")
                os.link(path, offered[-1])
        except OSError:
            for path in offered:
                path.unlink(missing_ok=True)
            return []
        return offered


def take_back(checkpoint: Path, used: Sequence[int]) -> None:
    """Remove the files to which a checkpoint does not refer. ``used`` has the bytes of the first, and so on."""
    for number, path in earlier_pages_in(checkpoint).items():
        if number > len(used) or not used[number - 1]:
            path.unlink()


def _link_all(checkpoint: Path, directory: Path) -> None:
    earlier = earlier_pages_in(checkpoint)
    own = checkpoint / NAMES[-1]
    if own.is_symlink():
        raise OSError(errno.EXDEV, "its pages are in memory")
    if own.stat().st_size > 0:
        unused = next(number for number in range(1, len(earlier) + 2) if number not in earlier)
        os.link(own, directory / f"pages-{unused}.img")
    for number, path in earlier.items():
        os.link(path, directory / f"pages-{number}.img")
