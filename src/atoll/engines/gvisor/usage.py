"""Measures the usage of processes, for hosts where no cgroup counts it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_MEMORY_FILE = "/memfd:runsc-memory"
_DISK_FILE = "/runsc-filestore-"
_KEPT_BYTES = 64 << 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Proportional memory (shared memory is split among the processes that share it) and processor time."""

    memory_bytes: int
    cpu_s: float


class _Stat(NamedTuple):
    parent: int
    ticks: int


def usage_of(pids: Collection[int]) -> Usage:
    """Measure these processes and their descendants. Ended processes do not count."""
    stats = _stats()
    tree = {pid for pid in stats if _descends(pid, pids, stats)}
    ticks = sum(stats[pid].ticks for pid in tree)
    return Usage(memory_bytes=sum(map(_memory_bytes, tree)), cpu_s=ticks / _TICKS_PER_S)


def guest_memory_bytes(sentry_pid: int) -> int | None:
    """Return the size of the file in which a sentry keeps its guest's memory. This takes about 50 µs."""
    return _open_file_bytes(sentry_pid, lambda name: name.startswith(_MEMORY_FILE))


def fits_twice(used_bytes: int, most_bytes: int | None, available_bytes: int) -> bool:
    """Whether a guest may use twice its memory for a moment, by its limit and the host's free memory."""
    free_bytes = available_bytes
    if most_bytes is not None:
        # Below this the agent kills the biggest process.
        free_bytes = min(free_bytes, most_bytes - max(_KEPT_BYTES, most_bytes // 8))
    return 2 * used_bytes < free_bytes


def open_guest_memory(sentry_pid: int) -> int | None:
    """Open the file of the guest's memory, which then outlives the sentry.

    None if the sentry has already ended.
    """
    path = _open_file(sentry_pid, lambda name: name.startswith(_MEMORY_FILE))
    try:
        return None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def own_disk_bytes(sentry_pid: int) -> int | None:
    """Return the size of the file in which a sentry keeps the changes to its guest's own disk."""
    return _open_file_bytes(sentry_pid, lambda name: _DISK_FILE in name and name.endswith(" (deleted)"))


def _open_file_bytes(pid: int, is_wanted: Callable[[str], bool]) -> int | None:
    path = _open_file(pid, is_wanted)
    try:
        return None if path is None else os.stat(path).st_blocks * 512
    except OSError:  # the process has ended
        return None


def _open_file(pid: int, is_wanted: Callable[[str], bool]) -> str | None:
    try:
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            if is_wanted(os.readlink(entry.path)):
                return entry.path
    except OSError:
        return None
    return None


def _stats() -> dict[int, _Stat]:
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_bytes()  # as bytes, because a process's name may be any bytes
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            fields = text[text.rindex(b")") + 2 :].split()
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
