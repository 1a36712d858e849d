"""Lets only a few guests be started or woken at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

# A start waits for processes half of its time. More at once would only make all of them slower.
_PER_PROCESSOR = 2
# A guest may do much work right after its wake. Others do not wait for that.
_PATIENCE_S = 10.0


class Turns:
    """Gives turns, first come first served. A long turn goes on, but the next no longer waits for it.

    Args:
        at_once: How many turns to give at once.
        patience_s: How long a turn may take before the next begins beside it.
    """

    def __init__(self, at_once: int | None = None, patience_s: float = _PATIENCE_S) -> None:
        self._free = asyncio.Semaphore(at_once or _PER_PROCESSOR * (os.cpu_count() or 1))
        self._patience_s = patience_s

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        await self._free.acquire()
        with contextlib.ExitStack() as over:
            over.callback(self._free.release)
            overdue = asyncio.get_running_loop().call_later(self._patience_s, over.close)
            try:
                yield
            finally:
                overdue.cancel()
