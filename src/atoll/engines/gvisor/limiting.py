"""Limits that the sentry itself holds: the patches ``*-limit``, ``disk-budget`` and ``disk-rate`` in native/."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from atoll.engines.base import DiskGrowth
from atoll.engines.gvisor.control import ControlSocket
from atoll.types import Limits


def task_limits(limits: Limits) -> dict[str, int]:
    """Processes, open files and the rate of the disk in bytes a second as the sentry is told them; 0 is no limit."""
    rate = 0 if limits.disk_mib_s is None else int(limits.disk_mib_s * (1 << 20))
    return {
        "Tasks": limits.processes or 0,
        "OpenFiles": limits.open_files or 0,
        "DiskBytesPerSecond": rate,
    }


async def limit_tasks(control: ControlSocket, limits: Limits) -> None:
    """Limit processes, open files and the rate of the disk of a guest that may run already.

    Raises:
        EngineError: The sentry does not answer.
    """
    await control.call("containerManager.Limit", task_limits(limits))


async def limit_growth(control: ControlSocket, growth: DiskGrowth | None, event_fd: int | None) -> None:
    """Say what may be added to the disk since it was last marked; None ends that.

    Raises:
        EngineError: The sentry does not answer.
    """
    argument: dict[str, object] = {"Limited": False}
    if growth is not None:
        argument = {"Limited": True, "Bytes": growth.size_bytes, "Inodes": growth.files}
    await control.call("containerManager.SetDiskBudget", argument, fds=[] if event_fd is None else [event_fd])


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
