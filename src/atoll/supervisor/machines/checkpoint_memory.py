"""Where the checkpoint of a fork lies in memory."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.errors import NoSpaceError
from atoll.host import read_memory

# Of what is free, and of all. What lies there is no cache: it stays until the last copy has read all of it, or has
# ended.
_PART = 4
# A guest's memory grows while its checkpoint is begun.
_GROWTH_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class OutgrownError(NoSpaceError):
    """A memory did not fit into its room, which was measured before its guest stood still: it is to go to the disk."""


class MemoryRoom(msgspec.Struct, frozen=True):
    """Where a checkpoint lies: in the directory ``into``, with its memory in the directory ``pages``."""

    into: Path
    pages: Path


class MemoryPlace:
    """Gives checkpoints that nobody keeps a place in memory, where the host has much of it free.

    On the disk a gigabyte of memory that was forked would be written out for nothing, and take its room there for
    as long as copies live.

    Args:
        directory: Where the holder mounts a file system that lies in memory; an older one does not.
        pages: Another one, of big pages. One is given and taken back a hundred times as fast as so many small ones, but
            where the host takes free memory back it takes 10 ms, too much for a file of a few bytes.
    """

    def __init__(self, directory: Path, pages: Path) -> None:
        self._directory = directory
        self._pages = pages
        self._promised: dict[str, int] = {}

    @contextlib.contextmanager
    def room(self, name: str, memory_bytes: int | None) -> Iterator[MemoryRoom | None]:
        """New directories for a checkpoint of as much memory; None where it has to lie on the disk.

        Until the end its room is promised to nobody else; from then on the file system itself says what is taken.
        """
        try:
            yield None if memory_bytes is None else self._make(name, memory_bytes)
        finally:
            self._promised.pop(name, None)

    def _make(self, name: str, memory_bytes: int) -> MemoryRoom | None:
        needed_bytes = memory_bytes + memory_bytes // 4 + _GROWTH_BYTES
        room = MemoryRoom(self._directory / name, self._pages / name)
        try:
            if self._pages.stat().st_dev == self._pages.parent.stat().st_dev:
                return None
            if needed_bytes > self._room_bytes():
                return None
            room.pages.mkdir(mode=0o700)
            try:
                room.into.mkdir(mode=0o700)
            except OSError:
                room.pages.rmdir()
                raise
        except OSError as error:
            _log.info("no checkpoint can lie in memory: %s", error)
            return None
        self._promised[name] = needed_bytes
        return room

    def _room_bytes(self) -> int:
        memory, disk = read_memory(), shutil.disk_usage(self._pages)
        room_bytes = min(memory.available_bytes // _PART, memory.total_bytes // _PART - disk.used, disk.free)
        return room_bytes - sum(self._promised.values())
