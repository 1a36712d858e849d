"""Sandboxes that a rule of their policy wants unplugged."""

from __future__ import annotations

import asyncio


class Alarms:
    """A queue of sandboxes to unplug, with the reasons. A sandbox that waits in it is not added again."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._waiting: set[str] = set()

    def ring(self, sandbox_id: str, reason: str) -> None:
        """Have a sandbox unplugged soon."""
        if sandbox_id not in self._waiting:
            self._waiting.add(sandbox_id)
            self._queue.put_nowait((sandbox_id, reason))

    async def next(self) -> tuple[str, str]:
        """Wait for the next sandbox, and return its id and the reason."""
        sandbox_id, reason = await self._queue.get()
        self._waiting.discard(sandbox_id)
        return sandbox_id, reason
