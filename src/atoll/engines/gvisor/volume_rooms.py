"""The part of a guest in gVisor that holds the room in its volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atoll.engines.base import VolumeRoom, VolumeUse
from atoll.engines.gvisor.limiting import limit_volumes, measure_volumes
from atoll.engines.gvisor.pausing import PausingControl


class GvisorVolumeRooms:
    """See ``VolumeRooms``. The machine sets its control socket."""

    _control: PausingControl

    async def measure_volumes(self, targets: Sequence[str]) -> dict[str, VolumeUse]:
        """See ``VolumeRooms.measure_volumes``."""
        return await measure_volumes(self._control, targets)

    async def limit_volumes(self, rooms: Mapping[str, VolumeRoom], event_fd: int | None = None) -> int:
        """See ``VolumeRooms.limit_volumes``."""
        return await limit_volumes(self._control, rooms, event_fd)
