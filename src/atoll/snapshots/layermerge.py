"""Merges several frozen layers into one, which shows the same disk over the same lower layers."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from atoll.errors import HostError
from atoll.host import FileCopy, copy_attributes, copy_node, open_below, open_top

_OPAQUE, _REDIRECT = "trusted.overlay.opaque", "trusted.overlay.redirect"
_LONGEST_PATH = 16 << 10


class _Step(NamedTuple):
    """What a layer has at a path (a directory, something else or nothing), and where lower layers continue.

    ``below`` is None if nothing of lower layers shows through.
    """

    directory: bool
    below: str | None


class _Directory(NamedTuple):
    """A directory to merge: its path, the layers that have it and where, and where it is below them."""

    at: str
    sources: list[tuple[int, str]]
    below: str | None


class LayerMerge:
    """Merges layers of the complete kind of overlay, with the result that the kernel would show.

    The kernel marks in a layer what is removed (a device 0:0), which directory hides those below it (opaque),
    and which one continues a directory of another path (redirect). The marks of the result say about the
    layers below it what the marks of all merged layers say together.

    Args:
        layers: The layers, the top one first. They must not change.
        target: Where the result is made; it must not exist yet.
    """

    def __init__(self, layers: Sequence[Path], target: Path) -> None:
        self._layers = layers
        self._target = target
        self._files = FileCopy()
        self._tops: list[int] = []
        self._steps: dict[tuple[int, str], _Step] = {}
        self._links: dict[tuple[int, int], str] = {}

    def merge(self) -> None:
        """Make the target.

        Raises:
            OSError: Something could not be copied. The caller must remove what was copied so far.
            HostError: The paths are too long.
        """
        self._target.mkdir(mode=0o700)
        with ExitStack() as opened:
            self._tops = [opened.enter_context(open_top(layer)) for layer in self._layers]
            target = opened.enter_context(open_top(self._target))
            waiting = [self._directory("")]
            while waiting:
                waiting += self._merge(waiting.pop(), target)

    def _merge(self, directory: _Directory, target: int) -> list[_Directory]:
        """Copy a directory's content, except that of its subdirectories, and return the subdirectories."""
        found: dict[str, tuple[int, str, os.stat_result]] = {}
        for layer, at in directory.sources:
            with open_below(self._tops[layer], at) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    if entry.name not in found:
                        found[entry.name] = (layer, at, entry.stat(follow_symlinks=False))
        deeper: list[_Directory] = []
        with open_below(target, directory.at) as new:
            for name, (layer, at, status) in found.items():
                path = _join(directory.at, name)
                if stat.S_ISDIR(status.st_mode):
                    os.mkdir(name, 0o700, dir_fd=new)
                    deeper.append(self._directory(path))
                elif not _is_whiteout(status) or directory.below is not None:
                    with open_below(self._tops[layer], at) as old:
                        self._copy((old, new, target), name, (layer, path), status)
            self._mark(directory, new)
        return deeper

    def _copy(
        self, places: tuple[int, int, int], name: str, of: tuple[int, str], status: os.stat_result
    ) -> None:
        old, new, target = places
        layer, path = of
        if status.st_nlink > 1 and not _is_whiteout(status):
            first = self._links.setdefault((layer, status.st_ino), path)
            if first != path:
                parent, _, first_name = first.rpartition("/")
                with open_below(target, parent) as there:
                    os.link(first_name, name, src_dir_fd=there, dst_dir_fd=new, follow_symlinks=False)
                return
        if stat.S_ISREG(status.st_mode):
            self._files.copy(old, new, name)
        else:
            copy_node(old, new, name, status)

    def _mark(self, directory: _Directory, new: int) -> None:
        layer, at = directory.sources[0]
        with open_below(self._tops[layer], at) as old:
            status = os.fstat(old)
            copy_attributes(old, new, status)
        for mark in (_OPAQUE, _REDIRECT):
            if _xattr(new, mark) is not None:
                os.removexattr(new, mark)
        if directory.below is None:
            os.setxattr(new, _OPAQUE, b"y")
        elif directory.at and directory.below != self._expected(directory.at):
            os.setxattr(new, _REDIRECT, b"/" + os.fsencode(directory.below))
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _expected(self, at: str) -> str | None:
        """Return where the kernel looks below the result for a directory that has no mark."""
        parent, _, name = at.rpartition("/")
        below = self._directory(parent).below
        return None if below is None else _join(below, name)

    def _directory(self, path: str) -> _Directory:
        sources: list[tuple[int, str]] = []
        at: str | None = path
        for layer in range(len(self._tops)):
            assert at is not None
            step = self._step(layer, at)
            if step.directory:
                sources.append((layer, at))
            at = step.below
            if at is None:
                break
        return _Directory(path, sources, at)

    def _step(self, layer: int, path: str) -> _Step:
        if len(path) > _LONGEST_PATH:
            raise HostError(
                f"a path in a layer has {len(path)} characters", hint="use a shorter path in the sandbox"
            )
        step = _Step(directory=True, below="")
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

    def _look(self, layer: int, at: str, parent: _Step) -> _Step:
        directory, _, name = at.rpartition("/")
        below = None if parent.below is None else _join(parent.below, name)
        if not parent.directory:
            return _Step(False, below)
        with open_below(self._tops[layer], directory) as fd:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return _Step(False, below)
        if not stat.S_ISDIR(status.st_mode):
            return _Step(False, None)
        with open_below(self._tops[layer], at) as fd:
            if _xattr(fd, _OPAQUE) == b"y":
                return _Step(True, None)
            redirect = os.fsdecode(_xattr(fd, _REDIRECT) or b"")
        if redirect.startswith("/"):
            return _Step(True, redirect.strip("/"))
        if redirect and parent.below is not None:
            return _Step(True, _join(parent.below, redirect))
        return _Step(True, below)


def _xattr(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None


def _join(at: str, name: str) -> str:
    return f"{at}/{name}" if at else name


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
