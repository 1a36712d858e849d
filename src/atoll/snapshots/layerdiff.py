"""Finds the differences between two disks by their layers. It reads files only where the layers differ."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from atoll.errors import StateError
from atoll.host import open_below, open_top
from atoll.snapshots.layerview import Directory, Entry, LayerView, is_whiteout, join
from atoll.types import FileChange, FileKind, FilesDiff

_CHUNK_BYTES = 1 << 20
# Mount points of every guest, which hide the files of an image or layer there.
_HIDDEN = frozenset({"proc", "sys", "dev"})


class _Side(NamedTuple):
    """One of the two disks: its layers and their combined view."""

    layers: Sequence[Path]
    view: LayerView


class LayerDiff:
    """Compares two disks.

    Where both show a directory of the very same layers, nothing below it can differ, so this skips it. It
    compares everything else entry by entry: kinds, owners, modes, sizes, targets of links, and content where
    the sizes are the same. Times do not count.

    No symbolic link is followed. A file that vanishes meanwhile counts as missing.

    Args:
        before: The layers of the one disk, the top layer first, the image's layers last.
        after: The layers of the other disk.
        paths: Directories and files to look at, relative to the top; empty is everything.
        most: How many changes to find at most.
        complete: As in ``LayerView``.
    """

    def __init__(
        self,
        before: Sequence[Path],
        after: Sequence[Path],
        *,
        paths: Sequence[str] = (),
        most: int,
        complete: bool,
    ) -> None:
        self._layers = before, after
        self._paths = [path.strip("/") for path in paths]
        self._most = most
        self._complete = complete
        self._changes: list[FileChange] = []
        self.stopped = threading.Event()

    def run(self) -> FilesDiff:
        """Compare them. This blocks.

        Raises:
            HostError: A path is too long.
            StateError: ``stopped`` was set meanwhile.
            OSError: A layer cannot be read.
        """
        with contextlib.ExitStack() as opened:
            before, after = (
                _Side(
                    layers,
                    LayerView(
                        [opened.enter_context(open_top(layer)) for layer in layers], complete=self._complete
                    ),
                )
                for layers in self._layers
            )
            waiting = [""]
            while waiting and len(self._changes) < self._most:
                waiting += self._compare(waiting.pop(), before, after)
        found = sorted(self._changes, key=lambda each: each.path)
        return FilesDiff(changes=found, truncated=bool(waiting) or len(found) >= self._most)

    def _compare(self, path: str, before: _Side, after: _Side) -> list[str]:
        """Compare the entries of a directory, and return its subdirectories that may differ below."""
        if self.stopped.is_set():
            raise StateError("the comparison was stopped")
        sides = [(side, side.view.directory(path)) for side in (before, after)]
        origins = [[(side.layers[layer], at) for layer, at in found.sources] for side, found in sides]
        if origins[0] == origins[1]:
            return []
        old, new = (_entries(side, found) for side, found in sides)
        deeper = []
        for name in sorted(old.keys() | new.keys()):
            at = join(path, name)
            if not self._is_wanted(at) or at in _HIDDEN:
                continue
            if len(self._changes) >= self._most:
                break
            one, other = old.get(name), new.get(name)
            if any(each is not None and stat.S_ISDIR(each.status.st_mode) for each in (one, other)):
                deeper.append(at)
            if self._is_named(at) and (change := _change(at, before, one, after, other)) is not None:
                self._changes.append(change)
        return deeper

    def _is_wanted(self, at: str) -> bool:
        """Whether to look at a path, or at something below it."""
        return self._is_named(at) or any(each.startswith(f"{at}/") for each in self._paths)

    def _is_named(self, at: str) -> bool:
        return not self._paths or any(each in ("", at) or at.startswith(f"{each}/") for each in self._paths)


def _entries(side: _Side, directory: Directory) -> dict[str, Entry]:
    try:
        found = side.view.entries(directory)
    except (FileNotFoundError, NotADirectoryError):  # its guest has removed it just now
        return {}
    return {name: entry for name, entry in found.items() if not is_whiteout(entry.status)}


def _change(
    path: str, before: _Side, old: Entry | None, after: _Side, new: Entry | None
) -> FileChange | None:
    if old is not None and new is not None and not _differ(path, before, old, after, new):
        return None
    return FileChange(
        path=os.fsencode(f"/{path}").decode(errors="replace"),
        change="changed" if old and new else "added" if new else "removed",
        kind_before=old and _kind(old.status),
        kind_after=new and _kind(new.status),
        bytes_before=old and _size(old.status),
        bytes_after=new and _size(new.status),
    )


def _differ(path: str, before: _Side, old: Entry, after: _Side, new: Entry) -> bool:
    if (before.layers[old.layer], old.at) == (after.layers[new.layer], new.at):
        return False
    one, other = old.status, new.status
    if (one.st_mode, one.st_uid, one.st_gid) != (other.st_mode, other.st_uid, other.st_gid):
        return True
    if not stat.S_ISREG(one.st_mode) and not stat.S_ISLNK(one.st_mode):
        return not stat.S_ISDIR(one.st_mode) and one.st_rdev != other.st_rdev
    if one.st_size != other.st_size:
        return True
    name = path.rpartition("/")[2]
    content = (_content(before, old, name), _content(after, new, name))
    try:
        return any(left != right for left, right in zip(*content, strict=True))
    except FileNotFoundError:  # its guest has removed it just now
        return True


def _content(side: _Side, entry: Entry, name: str) -> Iterator[bytes]:
    """The bytes of a file in pieces, as many as its size says, or the target of a link."""
    with open_below(side.view.tops[entry.layer], entry.at) as directory:
        if stat.S_ISLNK(entry.status.st_mode):
            yield os.fsencode(os.readlink(name, dir_fd=directory))
            return
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with open(fd, "rb", buffering=0) as file:
        for at in range(0, entry.status.st_size, _CHUNK_BYTES):
            yield os.pread(file.fileno(), _CHUNK_BYTES, at)


def _kind(status: os.stat_result) -> FileKind:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(status.st_mode) else "other"


def _size(status: os.stat_result) -> int:
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
