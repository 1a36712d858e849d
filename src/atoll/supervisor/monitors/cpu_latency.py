"""Keeps the host's idle processors quick to wake while somebody waits and while sandboxes compute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.host import CpuLatency

_LOOK_S = 1.0
# The interval between looks while idle processors are kept awake.
_SOON_S = 0.25
# From the start of an operation: this covers the operation and the first command after it.
_OPERATION_S = 1.0
# The share of all processors' time above which idle ones are kept awake. So this costs at most seven times
# the sandboxes' own usage. It goes on until they use less than half of that share.
_BUSY_SHARE = 1 / 8


class LatencyMonitor:
    """Makes and withdraws the request that idle processors stay quick to wake.

    Args:
        latency: The request.
        used_s: Returns the processor time that the sandboxes have used so far, in seconds; None if nothing
            counts it.
        processors: How many processors there are.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        latency: CpuLatency,
        used_s: Callable[[], float | None],
        processors: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._latency = latency
        self._used_s = used_s
        self._processors = processors
        self._clock = clock
        self._asked_s = -_OPERATION_S
        self._looked_s = clock()
        self._used_before_s = used_s() or 0.0
        self._busy = False
        self._requested = False

    def note(self) -> None:
        """Note that an operation begins now."""
        self._asked_s = self._clock()
        self._want(True)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                self.look()
                await asyncio.sleep(_SOON_S if self._requested else _LOOK_S)
        finally:
            self._latency.close()

    def look(self) -> None:
        """Compare the processor time with the last look's, and make or withdraw the request."""
        now_s = self._clock()
        used_s = self._used_s() or 0.0
        all_s = (now_s - self._looked_s) * self._processors
        least = _BUSY_SHARE / 2 if self._busy else _BUSY_SHARE
        # The counter starts from zero again if all groups were gone in between: a smaller value is no work.
        self._busy = used_s - self._used_before_s >= least * all_s > 0
        self._looked_s, self._used_before_s = now_s, used_s
        self._want(self._busy or now_s - self._asked_s < _OPERATION_S)

    def _want(self, wanted: bool) -> None:
        if wanted == self._requested:
            return
        self._requested = wanted
        if wanted:
            self._latency.request()
        else:
            self._latency.withdraw()
