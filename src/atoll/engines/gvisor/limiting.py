"""Limits that the sentry itself holds: ``*-limit``, ``disk-budget`` and ``disk-rate`` in native/patches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from atoll.engines.base import DiskGrowth
from atoll.engines.gvisor.control import ControlSocket, RefusedCallError
from atoll.types import Limits


def guest_limits(
    limits: Limits, keep_free_percent: int | None, growth: DiskGrowth | None = None
) -> dict[str, Any]:
    """What the sentry holds, as it is told; 0 is no limit. ``growth`` is for a guest that is yet to be started."""
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
    """Hold the limits of a guest that may run already; None leaves it what it keeps free.

    Raises:
        EngineError: The sentry does not answer.
    """
    await control.call("containerManager.Limit", guest_limits(limits, keep_free_percent))


async def watch_disk(control: ControlSocket, event_fd: int) -> bool:
    """Say where to ask for a measuring of the disk; False where the sentry is one of before that.

    Raises:
        EngineError: The sentry does not answer.
    """
    try:
        await control.call("containerManager.WatchDisk", {}, fds=[event_fd])
    except RefusedCallError:
        return False
    return True


async def limit_growth(control: ControlSocket, growth: DiskGrowth | None, event_fd: int | None) -> None:
    """Say what may be added to the disk since it was last marked; None ends that.

    Raises:
        EngineError: The sentry does not answer.
    """
    argument: dict[str, Any] = {"Limited": False} if growth is None else _budget(growth)
    await control.call("containerManager.SetDiskBudget", argument, fds=[] if event_fd is None else [event_fd])


def _budget(growth: DiskGrowth) -> dict[str, Any]:
    return {"Limited": True, "Bytes": growth.size_bytes, "Inodes": growth.files}


@contextmanager
def on_processors(limits: Limits, seed: str, *, cgroup: bool) -> Iterator[None]:
    """What is started meanwhile by this thread runs on as many processors as it may use, where no cgroup counts."""
    allowed = sorted(os.sched_getaffinity(0))
    if cgroup or limits.vcpus is None or limits.vcpus >= len(allowed):
        yield
        return
    # Not always the first ones: sandboxes are spread over the host.
    first = hash(seed) % len(allowed)
    chosen = [allowed[(first + number) % len(allowed)] for number in range(int(limits.vcpus))]
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
