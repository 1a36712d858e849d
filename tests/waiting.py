"""Waiting for what has no event."""

from __future__ import annotations

import time
from collections.abc import Callable

# Longer than anything takes on a busy machine.
BOUND_S = 60.0
_LOOK_S = 0.05


def until(true: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(_LOOK_S)
