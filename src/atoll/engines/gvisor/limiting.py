"""Limits that the sentry enforces: ``*-limit``, ``disk-budget`` and ``disk-rate`` in native/patches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec

from atoll.engines.base import DiskGrowth, VolumeRoom, VolumeUse
from atoll.engines.gvisor.control import ControlSocket
from atoll.errors import EngineError
from atoll.types import Limits, converted

_Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _RoomUse(msgspec.Struct, rename="pascal"):
    """What the sentry says of a mount."""

    rest: Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
    needed: _Bytes
    nameless: _Bytes


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
    """Set how much may be added to the disk since it was last marked. None removes the limit.

    Raises:
        EngineError: The sentry does not answer.
    """
    argument: dict[str, Any] = {"Limited": False} if growth is None else _budget(growth)
    await control.call("containerManager.SetDiskBudget", argument, fds=[] if event_fd is None else [event_fd])


async def measure_volumes(control: ControlSocket, targets: Sequence[str]) -> dict[str, VolumeUse]:
    """Say that mounts are being measured from now on. Returns what the guest does to them.

    Raises:
        EngineError: The sentry does not answer, or not with that.
    """
    answer = await control.call("containerManager.MeasureVolumes", list(targets))
    uses = _known(answer, dict[str, _RoomUse])
    return {path: VolumeUse(use.rest, use.needed, use.nameless) for path, use in uses.items()}


async def limit_volumes(control: ControlSocket, rooms: Mapping[str, VolumeRoom], event_fd: int | None) -> int:
    """Set how much may be added to each mount from now on. Returns what a measurement may have missed, in bytes.

    Raises:
        EngineError: The sentry does not answer, or not with that.
    """
    fds = [] if event_fd is None else [event_fd]
    told = {
        path: {"Bytes": room.size_bytes, "Left": room.left_bytes, "Quota": room.quota_bytes}
        for path, room in rooms.items()
    }
    answer = await control.call("containerManager.GiveVolumeRooms", {"Rooms": told}, fds=fds)
    missed_bytes: int = _known(answer, _Bytes)
    return missed_bytes


def _known(answer: object, kind: Any) -> Any:
    try:
        return converted(answer, kind)
    except msgspec.ValidationError as error:
        raise EngineError(f"the sentry says {answer!r} of volumes: {error}") from error


def _budget(growth: DiskGrowth) -> dict[str, Any]:
    return {"Limited": True, "Bytes": growth.size_bytes, "Inodes": growth.files}


@contextmanager
def on_processors(limits: Limits, seed: str, *, cgroup: bool) -> Iterator[None]:
    """Limit what this thread starts meanwhile to the processors it may use, where no cgroup counts them."""
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
