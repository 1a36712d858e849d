"""Provides places in memory for the checkpoints of forks."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from atoll.errors import NoSpaceError
from atoll.host import read_memory

# At most this part of the free memory, and of all memory. A checkpoint there is no cache: it stays until the
# last copy has read all of it, or has ended.
_PART = 4
# A guest's memory grows while its checkpoint is being started.
_GROWTH_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class OutgrownError(NoSpaceError):
    """A guest's memory outgrew its reserve, taken before the guest was frozen: it has to go to the disk."""


class MemoryCheckpoint(msgspec.Struct, frozen=True):
    """Where a checkpoint is kept: the directory ``into``, and the directory ``pages`` for its memory."""

    into: Path
    pages: Path


@dataclass(eq=False, repr=False)
class CheckpointMemory:
    """Provides memory for temporary checkpoints if the host has much free memory.

    On the disk, forked memory would be written out for nothing, and would take its space for as long as
    copies live.

    Args:
        directory: Where the holder mounts a file system in memory, if the host lets it.
        pages: A second such directory, with huge pages. The kernel allocates and frees these a hundred times
            as fast as small pages. But if the host has to reclaim memory first, a huge page takes 10 ms, too
            long for a file of a few bytes.
    """

    directory: Path
    pages: Path
    _promised: dict[str, int] = field(default_factory=dict, init=False)

    @contextlib.contextmanager
    def place(self, name: str, memory_bytes: int | None) -> Iterator[MemoryCheckpoint | None]:
        """New directories for a checkpoint of this much memory, or None if it has to be on the disk.

        Inside the block the memory is reserved. After the block, the file system's own usage accounts for it.
        """
        try:
            yield None if memory_bytes is None else self._make(name, memory_bytes)
        finally:
            self._promised.pop(name, None)

    def _make(self, name: str, memory_bytes: int) -> MemoryCheckpoint | None:
        needed_bytes = memory_bytes + memory_bytes // 4 + _GROWTH_BYTES
        place = MemoryCheckpoint(self.directory / name, self.pages / name)
        try:
            if self.pages.stat().st_dev == self.pages.parent.stat().st_dev:
                return None
            if needed_bytes > self._left_bytes():
                return None
            place.pages.mkdir(mode=0o700)
            try:
                place.into.mkdir(mode=0o700)
            except OSError:
                place.pages.rmdir()
                raise
        except OSError as error:
            _log.info("checkpoints cannot be kept in memory: %s", error)
            return None
        self._promised[name] = needed_bytes
        return place

    def _left_bytes(self) -> int:
        memory, disk = read_memory(), shutil.disk_usage(self.pages)
        left_bytes = min(memory.available_bytes // _PART, memory.total_bytes // _PART - disk.used, disk.free)
        return left_bytes - sum(self._promised.values())
