"""What processes use, where no cgroup counts it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_MEMORY_FILE = "/memfd:runsc-memory"
_DISK_FILE = "/runsc-filestore-"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Proportional memory (what is shared is split among those who share it) and processor time."""

    memory_bytes: int
    cpu_s: float


class _Stat(NamedTuple):
    parent: int
    ticks: int


def usage_of(pids: Collection[int]) -> Usage:
    """What these processes and their descendants use; those that have ended count nothing."""
    stats = _stats()
    tree = {pid for pid in stats if _descends(pid, pids, stats)}
    ticks = sum(stats[pid].ticks for pid in tree)
    return Usage(memory_bytes=sum(map(_memory_bytes, tree)), cpu_s=ticks / _TICKS_PER_S)


def guest_memory_bytes(sentry_pid: int) -> int | None:
    """What the file takes in which a sentry keeps its guest's memory: a look takes some 50 µs."""
    return _open_file_bytes(sentry_pid, lambda name: name.startswith(_MEMORY_FILE))


def own_disk_bytes(sentry_pid: int) -> int | None:
    """What the file takes in which a sentry keeps its guest's changes to the disk, where the disk is its own."""
    return _open_file_bytes(sentry_pid, lambda name: _DISK_FILE in name and name.endswith(" (deleted)"))


def _open_file_bytes(pid: int, is_wanted: Callable[[str], bool]) -> int | None:
    try:
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            if is_wanted(os.readlink(entry.path)):
                return os.stat(entry.path).st_blocks * 512
    except OSError:  # it has ended
        return None
    return None


def _stats() -> dict[int, _Stat]:
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = text[text.rindex(")") + 2 :].split()
            found[int(entry.name)] = _Stat(parent=int(fields[1]), ticks=int(fields[11]) + int(fields[12]))
    return found


def _descends(pid: int, ancestors: Collection[int], stats: dict[int, _Stat]) -> bool:
    while pid in stats:
        if pid in ancestors:
            return True
        pid = stats[pid].parent
    return False


def _memory_bytes(pid: int) -> int:
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
