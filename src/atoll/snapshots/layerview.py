"""The combined view of layers: the layer that shows a path, and the lower layers that it hides."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from atoll.errors import HostError
from atoll.host import open_below

OPAQUE, REDIRECT = "trusted.overlay.opaque", "trusted.overlay.redirect"
_LESSER_OPAQUE = "user.overlay.opaque"
_LONGEST_PATH = 16 << 10


class Step(NamedTuple):
    """A layer's entry at a path (a directory, something else or nothing), and the path in lower layers.

    ``below`` is None if nothing of lower layers shows through.
    """

    directory: bool
    below: str | None


class Directory(NamedTuple):
    """A directory of the view: its path, the layers that have it and where, and where it is below them."""

    at: str
    sources: list[tuple[int, str]]
    below: str | None


class Entry(NamedTuple):
    """An entry of a directory: its layer, the path of its directory in that layer, and its status."""

    layer: int
    at: str
    status: os.stat_result


class LayerView:
    """Looks at layers as the kernel does when they are mounted together.

    The kernel marks removed entries in a layer (a device 0:0), directories that hide those of lower layers
    (opaque), and directories that continue another path (redirect).

    Args:
        tops: The open top directories of the layers, the top layer first.
        complete: Whether the overlay is of the complete kind. Guests could make the marks of the other kind.
    """

    def __init__(self, tops: Sequence[int], *, complete: bool = True) -> None:
        self.tops = tops
        self._opaque = OPAQUE if complete else _LESSER_OPAQUE
        self._redirect = REDIRECT if complete else None
        self._steps: dict[tuple[int, str], Step] = {}

    def directory(self, path: str) -> Directory:
        """Where the directory at a path comes from. It has no sources if there is none in these layers.

        Raises:
            HostError: The path is too long.
        """
        sources: list[tuple[int, str]] = []
        at: str | None = path
        for layer in range(len(self.tops)):
            assert at is not None
            step = self._step(layer, at)
            if step.directory:
                sources.append((layer, at))
            at = step.below
            if at is None:
                break
        return Directory(path, sources, at)

    def entries(self, directory: Directory) -> dict[str, Entry]:
        """The layers' entries in a directory, by name, including the marks of removed names."""
        found: dict[str, Entry] = {}
        for layer, at in directory.sources:
            with open_below(self.tops[layer], at) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    if entry.name not in found:
                        found[entry.name] = Entry(layer, at, entry.stat(follow_symlinks=False))
        return found

    def _step(self, layer: int, path: str) -> Step:
        if len(path) > _LONGEST_PATH:
            raise HostError(
                f"a path in a layer has {len(path)} characters", hint="use a shorter path in the sandbox"
            )
        step = Step(directory=True, below="")
        end = 0
        while end < len(path):
            end = path.find("/", end + 1)
            end = end if end >= 0 else len(path)
            at = path[:end]
            known = self._steps.get((layer, at))
            if known is None:
                known = self._steps[layer, at] = self._look(layer, at, step)
            step = known
        return step

    def _look(self, layer: int, at: str, parent: Step) -> Step:
        directory, _, name = at.rpartition("/")
        below = None if parent.below is None else join(parent.below, name)
        if not parent.directory:
            return Step(False, below)
        with open_below(self.tops[layer], directory) as fd:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return Step(False, below)
        if not stat.S_ISDIR(status.st_mode):
            return Step(False, None)
        with open_below(self.tops[layer], at) as fd:
            if xattr(fd, self._opaque) == b"y":
                return Step(True, None)
            redirect = os.fsdecode((self._redirect and xattr(fd, self._redirect)) or b"")
        if redirect.startswith("/"):
            return Step(True, redirect.strip("/"))
        if redirect and parent.below is not None:
            return Step(True, join(parent.below, redirect))
        return Step(True, below)


def xattr(fd: int, name: str) -> bytes | None:
    """An extended attribute of an open file; None if it has none of the name."""
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None


def join(at: str, name: str) -> str:
    """The path of something in a directory, which is "" for the top."""
    return f"{at}/{name}" if at else name


def is_whiteout(status: os.stat_result) -> bool:
    """Whether an entry of a layer marks a removed name."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
