"""Reads the host's clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.host import boot_id


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _awake_s() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Clock:
    """Tells the time.

    Attributes:
        unix_s: Seconds since 1970 by the host's clock, which may jump.
        boot_s: Seconds since the host booted, including its sleep; it never jumps.
        boot: The id of this boot of the host.
        awake_s: Seconds in which the host was awake; it never jumps.
    """

    unix_s: Callable[[], float] = time.time
    boot_s: Callable[[], float] = _since_boot_s
    boot: str = field(default_factory=boot_id)
    awake_s: Callable[[], float] = _awake_s
