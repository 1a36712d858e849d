"""The part of a guest in gVisor that holds the room in its volumes: ``volume-rooms`` in native/patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from atoll.engines.base import VolumeRoom, VolumeUse
from atoll.engines.gvisor.pausing import PausingControl
from atoll.errors import EngineError
from atoll.types import converted

_Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _RoomUse(msgspec.Struct, rename="pascal"):
    """What the sentry says of a mount."""

    rest: Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
    needed: _Bytes
    nameless: _Bytes


class GvisorVolumeRooms:
    """See ``VolumeRooms``. The machine sets its control socket."""

    _control: PausingControl

    async def measure_volumes(self, targets: Sequence[str]) -> dict[str, VolumeUse]:
        """See ``VolumeRooms.measure_volumes``."""
        answer = await self._control.call("containerManager.MeasureVolumes", list(targets))
        uses: dict[str, _RoomUse] = _known(answer, dict[str, _RoomUse])
        return {path: VolumeUse(use.rest, use.needed, use.nameless) for path, use in uses.items()}

    async def limit_volumes(self, rooms: Mapping[str, VolumeRoom], event_fd: int | None = None) -> int:
        """See ``VolumeRooms.limit_volumes``."""
        told = {
            path: {"Bytes": room.size_bytes, "Left": room.left_bytes, "Quota": room.quota_bytes}
            for path, room in rooms.items()
        }
        fds = [] if event_fd is None else [event_fd]
        answer = await self._control.call("containerManager.GiveVolumeRooms", {"Rooms": told}, fds=fds)
        missed_bytes: int = _known(answer, _Bytes)
        return missed_bytes


def _known(answer: object, kind: Any) -> Any:
    try:
        return converted(answer, kind)
    except msgspec.ValidationError as error:
        raise EngineError(f"the sentry says {answer!r} of volumes: {error}") from error
