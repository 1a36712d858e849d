"""When the host's idle processors are kept quick to wake: while somebody waits, and while sandboxes compute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.host import CpuLatency

_LOOK_S = 1.0
# While idle processors are kept awake.
_SOON_S = 0.25
# From the beginning of an operation: until it has ended, and the first command after it.
_OPERATION_S = 1.0
# Of all processors' time. Above it those that are idle are kept awake, so this costs at most seven times what
# the sandboxes use themselves; it goes on until they use less than half of that.
_BUSY_SHARE = 1 / 8


class LatencyMonitor:
    """Makes and withdraws the request.

    Args:
        latency: The request.
        used_s: Processor time that the sandboxes have used so far, in seconds; None where nothing counts it.
        processors: How many there are.
        clock: Monotonic seconds.
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
        """An operation begins now."""
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
        """See what has been used since the last look, and do what follows from it."""
        now_s = self._clock()
        used_s = self._used_s() or 0.0
        all_s = (now_s - self._looked_s) * self._processors
        least = _BUSY_SHARE / 2 if self._busy else _BUSY_SHARE
        # What is counted begins anew where all groups were gone meanwhile: less than before is no work.
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
