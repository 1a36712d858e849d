"""Waits for Ctrl-C."""

from __future__ import annotations

import time
from typing import NoReturn

_LONG_S = 3600


def wait_for_interrupt() -> NoReturn:
    """Wait until Ctrl-C or a signal ends this process. Unlike a lock, a sleep can be broken off everywhere."""
    while True:
        time.sleep(_LONG_S)
