"""The memory of the host, as far as this process may use it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.host.resources.cgroup_memory import read_group_memory


class Memory(msgspec.Struct, frozen=True):
    """Memory in bytes: of the host, or what the control groups of this process leave of it, as in a container."""

    total_bytes: int
    available_bytes: int


def read_memory(meminfo: Path = Path("/proc/meminfo")) -> Memory:
    """What the host has and what is free for new work."""
    kib = {}
    for line in meminfo.read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        kib[name] = int(rest.split()[0])
    total, available = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    if group := read_group_memory():
        return Memory(min(total, group.limit_bytes), min(available, group.room_bytes))
    return Memory(total, available)
