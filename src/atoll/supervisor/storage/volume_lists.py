"""How many lists of volumes are made at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

_AT_ONCE = 2


class VolumeLists:
    """Lets two lists be made at once, and of each volume one: each may take a hundred megabytes and a second."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, volume_id: str) -> AsyncIterator[None]:
        """Wait for a turn to list a volume, and have it meanwhile."""
        # First: who asks for one volume many times waits behind himself.
        async with self._of.setdefault(volume_id, asyncio.Lock()), self._slots:
            yield
