"""Memory that the cgroups of this process allow it; in a container less than the host has."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from atoll.host.resources.cgroups import (
    V1_MEMORY,
    V2_MEMORY,
    CgroupMount,
    MemoryFiles,
    cgroup_mounts,
    memory_used,
    paths_of,
)

# Version 1 reports a number of about 2^63 if there is no limit.
_NONE_BYTES = 1 << 60


class GroupMemory(NamedTuple):
    """The lowest limit, and the least that is left below one, in bytes."""

    limit_bytes: int
    free_bytes: int


def read_group_memory() -> GroupMemory | None:
    """Return the memory that the cgroups of this process allow it; None if they set no limit."""
    return least(own_groups())


@functools.cache
def own_groups() -> tuple[Path, ...]:
    """Return the directories of the memory cgroups that this process is in, its own first."""
    mounts = cgroup_mounts(Path("/proc/self/mountinfo").read_text())
    return groups_of(mounts, Path("/proc/self/cgroup").read_text())


def groups_of(mounts: Iterable[CgroupMount], groups: str) -> tuple[Path, ...]:
    """Return these directories from the text of a process's ``cgroup`` file."""
    own = paths_of(groups)
    found: list[Path] = []
    for mount in mounts:
        if mount.controllers and "memory" not in mount.controllers:
            continue
        here = own.get("memory" if mount.controllers else "", PurePosixPath("/"))
        # Inside a container the path may be the host's, of which only the last part is mounted.
        below = here.relative_to(mount.root) if here.is_relative_to(mount.root) else PurePosixPath()
        found += [mount.point / below, *(mount.point / parent for parent in below.parents)]
    return tuple(dict.fromkeys(found))


def least(groups: Iterable[Path]) -> GroupMemory | None:
    """Return the least that these cgroups allow."""
    both = (V2_MEMORY, V1_MEMORY)
    found = [each for group in groups for files in both if (each := _memory_of(group, files))]
    if not found:
        return None
    return GroupMemory(min(each.limit_bytes for each in found), min(each.free_bytes for each in found))


def _memory_of(group: Path, files: MemoryFiles) -> GroupMemory | None:
    try:
        limit = int((group / files.limit).read_text())
        if limit >= _NONE_BYTES:
            return None
        return GroupMemory(limit, max(0, limit - memory_used(group, files)))
    except (OSError, ValueError):  # it has no limit
        return None
