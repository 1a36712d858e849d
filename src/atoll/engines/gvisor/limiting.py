"""Limits that the sentry enforces: ``*-limit``, ``disk-budget`` and ``disk-rate`` in native/patches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from atoll.engines.base import DiskGrowth
from atoll.engines.gvisor.control import ControlSocket
from atoll.types import Limits


def guest_limits(
    limits: Limits, keep_free_percent: int | None, growth: DiskGrowth | None = None
) -> dict[str, Any]:
    """Return the limits in the form the sentry takes; 0 is no limit.

    ``growth`` is for a guest that has not started yet.
    """
    rate = 0 if limits.disk_mib_s is None else int(limits.disk_mib_s * (1 << 20))
    told: dict[str, Any] = {
        "Tasks": limits.processes or 0,
        "OpenFiles": limits.open_files or 0,
        "DiskBytesPerSecond": rate,
        "DiskBytes": (limits.disk_mib or 0) << 20,
        "DiskInodes": limits.files or 0,
    }
    if keep_free_percent is not None:
        told["DiskKeepFree"] = keep_free_percent
    if growth is not None:
        told["DiskLeft"] = _budget(growth)
    return told


async def limit_guest(control: ControlSocket, limits: Limits, keep_free_percent: int | None) -> None:
    """Set the limits of a guest that may already run.

    A ``keep_free_percent`` of None leaves that setting as it is.

    Raises:
        EngineError: The sentry does not answer.
    """
    await control.call("containerManager.Limit", guest_limits(limits, keep_free_percent))


async def watch_disk(control: ControlSocket, event_fd: int) -> None:
    """Set the eventfd that asks for a measurement of the disk.

    Raises:
        EngineError: The sentry does not answer.
    """
    await control.call("containerManager.WatchDisk", {}, fds=[event_fd])


async def limit_growth(control: ControlSocket, growth: DiskGrowth | None, event_fd: int | None) -> None:
    """Set the growth allowed to the disk since its last mark. None removes the limit.

    Raises:
        EngineError: The sentry does not answer.
    """
    argument: dict[str, Any] = {"Limited": False} if growth is None else _budget(growth)
    await control.call("containerManager.SetDiskBudget", argument, fds=[] if event_fd is None else [event_fd])


def _budget(growth: DiskGrowth) -> dict[str, Any]:
    return {"Limited": True, "Bytes": growth.size_bytes, "Inodes": growth.files}


@contextmanager
def on_processors(limits: Limits, seed: str, *, cgroup: bool) -> Iterator[None]:
    """Confine processes that start inside the block to some processors, where no cgroup does."""
    allowed = sorted(os.sched_getaffinity(0))
    if cgroup or limits.vcpus is None or limits.vcpus >= len(allowed):
        yield
        return
    # Do not always take the first processors: this spreads sandboxes over the host.
    first = hash(seed) % len(allowed)
    chosen = [allowed[(first + number) % len(allowed)] for number in range(int(limits.vcpus))]
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
