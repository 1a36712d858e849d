"""The default limits of a sandbox."""

from __future__ import annotations

from atoll.host import DiskUsage
from atoll.types import Limits

_PROCESSES = 1024
_OPEN_FILES = 65_536
_DISK_MIB = 20_480
# Sandboxes without a disk limit of their own leave this much of the host's disk free. The guest kernels
# enforce it.
KEEP_FREE_PERCENT = 10


def default_limits(host_memory_bytes: int, host_disk_bytes: int) -> Limits:
    """Half of the host's memory, 20 GiB of its disk, as many processes and files as a busy desktop has."""
    most_mib = host_disk_bytes // 100 * (100 - KEEP_FREE_PERCENT) >> 20
    return Limits(
        memory_mib=host_memory_bytes // 2 >> 20,
        disk_mib=max(1, min(_DISK_MIB, most_mib)),
        processes=_PROCESSES,
        open_files=_OPEN_FILES,
    )


def disk_left(disk: DiskUsage) -> int:
    """Bytes that all sandboxes without a disk limit of their own may still write to the host's disk."""
    return max(0, disk.free - disk.total // 100 * KEEP_FREE_PERCENT)
