"""Merges several frozen layers into one, which shows the same disk over the same lower layers."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from atoll.host import FileCopy, copy_attributes, copy_node, open_below, open_top
from atoll.snapshots.layerview import OPAQUE, REDIRECT, Directory, LayerView, is_whiteout, join, xattr


class LayerMerge:
    """Merges layers of the complete kind of overlay, with the result that the kernel would show.

    The kernel marks removed entries in a layer (a device 0:0), directories that hide those of lower layers
    (opaque), and directories that continue another path (redirect). The result's marks have the same effect
    on the layers below as all marks of the merged layers together.

    Args:
        layers: The layers, the top layer first, which must not change.
        target: The place for the result; it must not exist yet.
    """

    def __init__(self, layers: Sequence[Path], target: Path) -> None:
        self._layers = layers
        self._target = target
        self._files = FileCopy()
        self._view = LayerView([])
        self._links: dict[tuple[int, int], str] = {}

    def merge(self) -> None:
        """Make the target.

        Raises:
            OSError: Something could not be copied. The caller must remove the part copied so far.
            HostError: The paths are too long.
        """
        self._target.mkdir(mode=0o700)
        with ExitStack() as opened:
            self._view = LayerView([opened.enter_context(open_top(layer)) for layer in self._layers])
            target = opened.enter_context(open_top(self._target))
            waiting = [self._view.directory("")]
            while waiting:
                waiting += self._merge(waiting.pop(), target)

    def _merge(self, directory: Directory, target: int) -> list[Directory]:
        """Copy a directory's content, except that of its subdirectories, and return the subdirectories."""
        deeper: list[Directory] = []
        with open_below(target, directory.at) as new:
            for name, (layer, at, status) in self._view.entries(directory).items():
                path = join(directory.at, name)
                if stat.S_ISDIR(status.st_mode):
                    os.mkdir(name, 0o700, dir_fd=new)
                    deeper.append(self._view.directory(path))
                elif not is_whiteout(status) or directory.below is not None:
                    with open_below(self._view.tops[layer], at) as old:
                        self._copy((old, new, target), name, (layer, path), status)
            self._mark(directory, new)
        return deeper

    def _copy(
        self, places: tuple[int, int, int], name: str, of: tuple[int, str], status: os.stat_result
    ) -> None:
        old, new, target = places
        layer, path = of
        if status.st_nlink > 1 and not is_whiteout(status):
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

    def _mark(self, directory: Directory, new: int) -> None:
        layer, at = directory.sources[0]
        with open_below(self._view.tops[layer], at) as old:
            status = os.fstat(old)
            copy_attributes(old, new, status)
        for mark in (OPAQUE, REDIRECT):
            if xattr(new, mark) is not None:
                os.removexattr(new, mark)
        if directory.below is None:
            os.setxattr(new, OPAQUE, b"y")
        elif directory.at and directory.below != self._expected(directory.at):
            os.setxattr(new, REDIRECT, b"/" + os.fsencode(directory.below))
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _expected(self, at: str) -> str | None:
        """Return where the kernel looks below the result for a directory that has no mark."""
        parent, _, name = at.rpartition("/")
        below = self._view.directory(parent).below
        return None if below is None else join(below, name)
