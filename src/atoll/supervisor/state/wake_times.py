"""When sleeping sandboxes wake because a program inside wants it."""

from __future__ import annotations

from atoll.types import Lifecycle

# The earliest wake that a guest may ask for, so that a sandbox that soon falls idle does not wake all the
# time.
LEAST_S = 5.0
MOST_S = 366 * 86_400.0


def wake_time(lifecycle: Lifecycle, asked_at: float, now_s: float) -> float | None:
    """Return when a sandbox that sleeps from now on wakes; None means never.

    Args:
        asked_at: The time that a program inside asks for, in Unix seconds. A time in the past, or over a year
            ahead, counts as none.
        now_s: The time, in Unix seconds.
    """
    if not lifecycle.auto_resume or not now_s < asked_at <= now_s + MOST_S:
        return None
    return max(asked_at, now_s + LEAST_S)
