"""Limits how many listings of volumes are made at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

_AT_ONCE = 2


class VolumeLists:
    """Allows two listings at once, one of each volume: each may take a hundred megabytes and a second."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, volume_id: str) -> AsyncIterator[None]:
        """Wait for a turn to list a volume, and keep it inside the block."""
        # The volume's lock first: a client that lists one volume many times waits behind itself.
        async with self._of.setdefault(volume_id, asyncio.Lock()), self._slots:
            yield
