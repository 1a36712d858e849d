"""Waiting for what has no event."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from atoll.host import stands_still

# Longer than anything takes on a busy machine.
BOUND_S = 60.0
_LOOK_S = 0.05


def until(true: Callable[[], object], told: Callable[[], object] = str) -> None:
    """Wait until something is so. If it never comes, the failure shows what ``told`` returns."""
    deadline = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < deadline, f"it never came {told()}"
        time.sleep(_LOOK_S)


def stop(pid: int) -> None:
    """Stop a process, and wait until it stands still: its other threads go on until one has taken the signal."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stands_still(pid))
