"""Completes hard links that a mounted overlay has only half copied up."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path

import msgspec

from atoll.host import write_atomically
from atoll.types.internal import from_json


def settle_links(merged: Path, upper: Path, work: Path, record: Path) -> None:
    """Give all names of a hard-linked file entries in the writable layer once one of them has an entry.

    A guest may write to a file with several names in a lower layer. The kernel then copies it up under one
    name, and finds the others by an index in ``work``. That index is valid for one mount only. So before the
    layer becomes a lower layer, or is copied, this copies the other names up too, as links to the same file.

    This costs nothing if no such file was written to. Otherwise it walks the merged tree, once for each new
    file.

    Args:
        merged: Where the overlay is mounted.
        record: A file that records which entries of the index are done.
    """
    entries = _index(work)
    if links_are_settled(work, record):
        return
    for names in _linked_files(merged).values():
        above = [name for name in names if os.path.lexists(os.path.join(upper, name))]
        if above and len(above) < len(names):
            for name in set(names) - set(above):
                with contextlib.suppress(FileNotFoundError):  # the guest may be running
                    # This changes nothing, but makes the kernel copy the file up.
                    os.chown(os.path.join(merged, name), -1, -1, follow_symlinks=False)
    write_atomically(record, msgspec.json.encode(sorted(entries)))


def links_are_settled(work: Path, record: Path) -> bool:
    """Whether ``settle_links`` has nothing to do."""
    return _index(work) <= _done(record)


def _index(work: Path) -> set[str]:
    try:
        # Names that begin with # are temporary ones of the kernel.
        return {name for name in os.listdir(work / "index") if not name.startswith("#")}
    except FileNotFoundError:
        return set()


def _done(record: Path) -> set[str]:
    try:
        return set(from_json(record.read_bytes(), list[str]))
    except (FileNotFoundError, ValueError):
        return set()


def _linked_files(top: Path) -> dict[int, list[str]]:
    """Return the paths below ``top`` of files with more than one name, by inode."""
    found: dict[int, list[str]] = defaultdict(list)
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(top / directory) as entries,
        ):
            for entry in entries:
                path = os.path.join(directory, entry.name)
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path)
                    elif (info := entry.stat(follow_symlinks=False)).st_nlink > 1:
                        found[info.st_ino].append(path)
    return found
