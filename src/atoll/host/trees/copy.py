"""Copies directory trees, such as disk layers, exactly, even while they are in use."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from atoll.host.trees.file_copy import FileCopy, copy_attributes, copy_node
from atoll.host.trees.whole import open_below, open_top, remove_entry, sync_tree

# A change within one tick of the kernel's clock does not alter the change time.
_CLOCK_REALTIME_COARSE = 5
_CLOCK_NS = 2 * int(time.clock_getres(_CLOCK_REALTIME_COARSE) * 1e9)
# The errors if an entry is renamed, replaced or removed while it is copied.
_CAUGHT = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ESTALE,
    errno.EEXIST,
    errno.EINVAL,  # a symlink became a file
    errno.ENXIO,  # a file became a socket
    errno.ENODATA,  # an extended attribute is gone
)


class _Mark(NamedTuple):
    """The facts that show whether an entry has changed since it was copied."""

    inode: int
    mode: int
    owner: tuple[int, int]
    size: int
    modified_ns: int
    changed_ns: int


# No entry has these, so one with this mark counts as changed.
_UNKNOWN = _Mark(0, 0, (0, 0), 0, 0, 0)


def copy_tree(source: Path, target: Path) -> None:
    """Make ``target`` an exact copy of a directory that does not change meanwhile.

    The copy keeps owners, modes, times, extended attributes, holes, hard links within the tree, devices
    (including an overlay's whiteouts), fifos and sockets. It shares file contents with the original where the
    file system can.

    Args:
        source: A directory.
        target: Made if missing; otherwise it must be an empty directory.

    Raises:
        OSError: The copy failed. The caller must remove the part copied so far.
    """
    TreeCopy(source, target).copy()


class TreeCopy:
    """Copies a tree in two steps: ``first`` while others change it, ``last`` when nothing changes it."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._files = FileCopy()
        self._marks: dict[str, dict[str, _Mark]] = {}
        self._links: dict[int, str] = {}
        self._live = False
        self._settled_ns = 0

    def copy(self) -> None:
        """Copy the whole tree at once."""
        self._target.mkdir(mode=0o700, exist_ok=True)
        with open_top(self._source) as source, open_top(self._target) as target:
            self._copy_directories(source, target, [""])

    def first(self) -> None:
        """Copy the tree while it may change. ``last`` corrects changes made during the copy."""
        self._live = True
        # Wait first: a write just before the call would otherwise count as too recent, and be copied twice.
        time.sleep(_CLOCK_NS / 1e9)
        # Pages that a program has mapped and written show their next change only after they have reached the
        # disk.
        began_ns = time.time_ns()
        sync_tree(self._source)
        self._settled_ns = began_ns - _CLOCK_NS
        try:
            self.copy()
        finally:
            self._live = False

    def last(self) -> None:
        """Update the copy. The tree must not change meanwhile."""
        self._links.clear()
        with open_top(self._source) as source, open_top(self._target) as target:
            waiting = [""]
            fresh: list[str] = []
            while waiting:
                at = waiting.pop()
                with open_below(source, at) as old, open_below(target, at) as new:
                    known, new_directories = self._update_entries(old, new, target, at)
                waiting += known
                fresh += new_directories
            # After everything that stays, because a moved file may be hard-linked with it.
            self._copy_directories(source, target, fresh)

    def _update_entries(self, old: int, new: int, target: int, at: str) -> tuple[list[str], list[str]]:
        """Update one directory and return the paths of its subdirectories: the known ones, the new ones."""
        before = self._marks.pop(at, {})
        marks = self._marks[at] = {}
        known: list[str] = []
        fresh: list[str] = []
        with os.scandir(old) as entries:
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
        for name in before.keys() - found.keys():
            remove_entry(new, name)
        for name, status in found.items():
            path = _join(at, name)
            mark = marks[name] = _mark(status)
            had = before.get(name)
            if had is not None and _same_directory(had, mark):
                known.append(path)
            elif had != mark:
                if had is not None:
                    remove_entry(new, name)
                if self._copy_entry((old, new, target), name, status, path):
                    fresh.append(path)
            elif status.st_nlink > 1:
                self._links.setdefault(status.st_ino, path)
        copy_attributes(old, new, os.fstat(old))
        return known, fresh

    def _copy_directories(self, source: int, target: int, waiting: list[str]) -> None:
        while waiting:
            at = waiting.pop()
            with self._tolerant(), open_below(source, at) as old, open_below(target, at) as new:
                waiting += self._copy_entries(old, new, target, at)

    def _copy_entries(self, old: int, new: int, target: int, at: str) -> list[str]:
        marks = self._marks[at] = {}
        deeper: list[str] = []
        with os.scandir(old) as entries:
            for entry in entries:
                with self._tolerant():
                    status = entry.stat(follow_symlinks=False)
                    path = _join(at, entry.name)
                    # Record this first: a failed copy may leave something that ``last`` has to remove.
                    marks[entry.name] = _UNKNOWN
                    if self._copy_entry((old, new, target), entry.name, status, path):
                        deeper.append(path)
                    if not self._live or status.st_ctime_ns < self._settled_ns or _is_directory(status):
                        marks[entry.name] = _mark(status)
        copy_attributes(old, new, os.fstat(old))
        return deeper

    def _copy_entry(self, places: tuple[int, int, int], name: str, status: os.stat_result, path: str) -> bool:
        """Copy one entry. Returns True for a directory, whose content must still be copied."""
        old, new, target = places
        if _is_directory(status):
            os.mkdir(name, 0o700, dir_fd=new)
            return True
        if status.st_nlink > 1 and not _is_whiteout(status):
            if (first := self._links.get(status.st_ino)) is not None:
                parent, _, first_name = first.rpartition("/")
                with open_below(target, parent) as there:
                    os.link(first_name, name, src_dir_fd=there, dst_dir_fd=new, follow_symlinks=False)
                return False
            self._links[status.st_ino] = path
        if stat.S_ISREG(status.st_mode):
            self._files.copy(old, new, name)
        else:
            copy_node(old, new, name, status)
        return False

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._live or error.errno not in _CAUGHT:
                raise


def _join(at: str, name: str) -> str:
    return f"{at}/{name}" if at else name


def _is_directory(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)


def _same_directory(had: _Mark, mark: _Mark) -> bool:
    # The kernel may give the inode number of a removed file to the next new file or directory.
    return stat.S_ISDIR(had.mode) and stat.S_ISDIR(mark.mode) and had.inode == mark.inode


def _is_whiteout(status: os.stat_result) -> bool:
    # The kernel makes all whiteouts of an overlay as names of one file; that has no meaning.
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _mark(status: os.stat_result) -> _Mark:
    owner = (status.st_uid, status.st_gid)
    if _is_whiteout(status):
        return _Mark(0, status.st_mode, owner, 0, 0, 0)
    return _Mark(status.st_ino, status.st_mode, owner, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
