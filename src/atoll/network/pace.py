"""Rates at which something is done for one guest."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """A token bucket: allows ``burst`` times at once, and ``per_s`` times per second after that.

    Args:
        per_s: How many times per second in the long run.
        burst: How many times at once, after a rest.
        clock: Returns the time in seconds.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._left = self._burst
        self._as_of_s = clock()

    def wait_s(self) -> float:
        """Return the seconds until the next time is allowed; 0 is now."""
        now_s = self._clock()
        self._left = min(self._burst, self._left + (now_s - self._as_of_s) * self._per_s)
        self._as_of_s = now_s
        return max(0.0, (1 - self._left) / self._per_s)

    def take(self, times: float = 1) -> None:
        """Count one time, or more: what is more than allowed now has to be waited for."""
        self._left -= times
