"""Bounds for waiting."""

from __future__ import annotations

import time

from atoll.errors import InvalidSpecError
from atoll.types.internal import check_number

# the agent can count this in milliseconds, and nobody waits longer
_MOST_S = 1e12


class Deadline:
    """A moment on the monotonic clock that the waits of one call share.

    Args:
        seconds: How long from now. None means no limit.
        silence_s: The longest wait without a byte.
        whole: Count from now whatever happens, connecting included.
    """

    def __init__(self, seconds: float | None, *, silence_s: float | None = None, whole: bool = False) -> None:
        self._seconds = seconds
        self._silence_s = silence_s
        self._whole = False
        self.restart()
        self._whole = whole

    def restart(self) -> None:
        """Count from now. Connecting, which may wake a sandbox, has its own bound."""
        if not self._whole:
            self._at = None if self._seconds is None else time.monotonic() + self._seconds

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self._at is not None and time.monotonic() >= self._at

    def for_one_answer(self) -> Deadline:
        """Return a deadline for several waits that together may take as long as one."""
        return Deadline(self.left())

    def left(self) -> float | None:
        """Return the seconds that the next wait may take: what is left, but no more than ``silence_s``.

        Raises:
            TimeoutError: No time is left.
        """
        if self._at is None:
            return self._silence_s
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the call's timeout_s has passed")
        return left if self._silence_s is None else min(left, self._silence_s)


def check_timeout(timeout_s: float | None, name: str = "timeout_s") -> None:
    """Refuse a value that is not a waiting time. None means as long as it takes.

    Raises:
        InvalidSpecError: The value is not a waiting time.
    """
    if timeout_s is None:
        return
    hint = "give more than 0, or None for no limit"
    check_number(name, timeout_s, hint=hint)
    if not 0 < timeout_s < _MOST_S:
        raise InvalidSpecError(f"{name} is {timeout_s:g}", hint=hint)
