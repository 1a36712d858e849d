"""Waiting for servers inside a sandbox."""

from __future__ import annotations

import time

from atoll import Sandbox
from atoll.errors import NotFoundError

BOUND_S = 60.0


def until_listening(box: Sandbox, port: int) -> None:
    """Return when something listens on the port inside."""
    deadline = time.monotonic() + BOUND_S
    while True:
        try:
            box.ports.dial(port).close()
            return
        except NotFoundError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
