"""The part of a guest in gVisor that holds the budgets of its volumes: ``volume-rooms`` in native/patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from atoll.engines.base import VolumeBudget, VolumeUse
from atoll.engines.gvisor.pausing import PausingControl
from atoll.errors import EngineError
from atoll.types.internal import converted

_Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _BudgetUse(msgspec.Struct, rename="pascal"):
    """What the sentry says of a mount."""

    rest: Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
    needed: _Bytes
    nameless: _Bytes


class GvisorVolumeBudgets:
    """See ``VolumeBudgets``. The machine sets its control socket."""

    _control: PausingControl

    async def measure_volumes(self, targets: Sequence[str]) -> dict[str, VolumeUse]:
        """See ``VolumeBudgets.measure_volumes``."""
        answer = await self._control.call("containerManager.MeasureVolumes", list(targets))
        uses: dict[str, _BudgetUse] = _known(answer, dict[str, _BudgetUse])
        return {path: VolumeUse(use.rest, use.needed, use.nameless) for path, use in uses.items()}

    async def limit_volumes(self, budgets: Mapping[str, VolumeBudget], event_fd: int | None = None) -> int:
        """See ``VolumeBudgets.limit_volumes``."""
        told = {
            path: {"Bytes": budget.size_bytes, "Left": budget.left_bytes, "Quota": budget.quota_bytes}
            for path, budget in budgets.items()
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
