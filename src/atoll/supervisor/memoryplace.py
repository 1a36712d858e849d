"""Where the checkpoint of a fork lies in memory."""

from __future__ import annotations

import logging
from pathlib import Path

from atoll.host import free_bytes, read_memory

# What lies there is no cache: it stays until the last copy has read all of it or has ended.
_PART_OF_FREE = 4
# A guest's memory grows while its checkpoint is begun.
_GROWTH_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class MemoryPlace:
    """Gives checkpoints that nobody keeps a place in memory, where the host has much of it free.

    On the disk a gigabyte of memory that was forked would be written out for nothing, and take its room there for
    as long as copies live.

    Args:
        directory: Where the holder mounts a file system that lies in memory; an older one does not.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self, name: str, memory_bytes: int | None) -> Path | None:
        """Make a directory for a checkpoint of as much memory; None where it has to lie on the disk. Blocks."""
        if memory_bytes is None:
            return None
        try:
            if self._directory.stat().st_dev == self._directory.parent.stat().st_dev:
                return None
            room_bytes = min(read_memory().available_bytes // _PART_OF_FREE, free_bytes(self._directory))
            if memory_bytes + memory_bytes // 4 + _GROWTH_BYTES > room_bytes:
                return None
            place = self._directory / name
            place.mkdir(mode=0o700)
        except OSError as error:
            _log.info("no checkpoint can lie in memory: %s", error)
            return None
        return place
