"""The memory of the host that this process may use."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.host.resources.cgroup_memory import read_group_memory


class Memory(msgspec.Struct, frozen=True):
    """Memory in bytes: the host's, or what the cgroups of this process allow of it, as in a container."""

    total_bytes: int
    available_bytes: int


def read_memory(meminfo: Path = Path("/proc/meminfo")) -> Memory:
    """Return how much memory there is, and how much is available for new work."""
    kib = {}
    for line in meminfo.read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        kib[name] = int(rest.split()[0])
    total, available = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    if group := read_group_memory():
        return Memory(min(total, group.limit_bytes), min(available, group.free_bytes))
    return Memory(total, available)
