"""The memory of the host."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Memory(msgspec.Struct, frozen=True):
    """The host's memory in bytes."""

    total_bytes: int
    available_bytes: int


def read_memory(meminfo: Path = Path("/proc/meminfo")) -> Memory:
    """What the host has and what is free for new work."""
    kib = {}
    for line in meminfo.read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        kib[name] = int(rest.split()[0])
    return Memory(kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024)
