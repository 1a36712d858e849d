"""When sleeping sandboxes wake because a program inside wants it."""

from __future__ import annotations

from atoll.types import Lifecycle

# What a guest asks for: not sooner, so that a sandbox that is idle at once does not wake all the time.
LEAST_S = 5.0
MOST_S = 366 * 86_400.0


def wake_time(lifecycle: Lifecycle, asked_at: float, now_s: float) -> float | None:
    """Return when a sandbox that sleeps from now on wakes; None is never.

    Args:
        asked_at: What a program inside wants, in Unix seconds. What has passed, or is over a year ahead, is no
            wish.
        now_s: The time, in Unix seconds.
    """
    if not lifecycle.auto_resume or not now_s < asked_at <= now_s + MOST_S:
        return None
    return max(asked_at, now_s + LEAST_S)
