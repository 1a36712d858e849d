"""What the groups share: a supervisor as it is wanted, and sandboxes in known states."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from atoll import Sandbox, Supervisor

POOL_REFILL_S = 1.0
DIRTY = "import os, time; block = os.urandom(64 << 20); open('/tmp/dirty', 'w').close(); time.sleep(1e6)"


@contextmanager
def supervisor(*, pool_size: int) -> Iterator[None]:
    """Have a supervisor that keeps so many warm machines; none runs afterwards."""
    Supervisor.stop()
    before = os.environ.get("ATOLL_POOL_SIZE")
    os.environ["ATOLL_POOL_SIZE"] = str(pool_size)
    try:
        yield
    finally:
        Supervisor.stop()
        del os.environ["ATOLL_POOL_SIZE"]
        if before is not None:
            os.environ["ATOLL_POOL_SIZE"] = before


def refill() -> None:
    """Give the warm pool time to fill up again."""
    time.sleep(POOL_REFILL_S)


def make_dirty(sandbox: Sandbox) -> None:
    """Start a Python process inside that holds 64 MiB of random bytes, and wait until it has them."""
    sandbox.processes.start(["python3", "-c", DIRTY])
    while not sandbox.files.exists("/tmp/dirty"):
        time.sleep(0.05)
