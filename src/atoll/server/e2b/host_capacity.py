"""The host's capacity, as far as clients may know."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec


class HostCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The usual limits of a sandbox without its own.

    Args:
        vcpus: Processors.
        memory_mib: Half of the memory, which the supervisor gives by default.
        disk_mib: The size of the disk under the home.
    """

    vcpus: int
    memory_mib: int
    disk_mib: int


def host_capacity(home: Path) -> HostCapacity:
    """Return the host of a home."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostCapacity(
        vcpus=os.cpu_count() or 1, memory_mib=pages // 2 >> 20, disk_mib=shutil.disk_usage(home).total >> 20
    )
