"""The host's clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.host import boot_id


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Clock:
    """What time it is.

    Attributes:
        unix_s: Seconds since 1970 as the host believes, which may jump.
        boot_s: Seconds since the host booted, its own sleep included; it never jumps.
        boot: Which boot of the host that was.
    """

    unix_s: Callable[[], float] = time.time
    boot_s: Callable[[], float] = _since_boot_s
    boot: str = field(default_factory=boot_id)
