"""Sandboxes that a rule of their policy wants unplugged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False, repr=False)
class Alarms:
    """A queue of sandboxes to unplug, with the reasons. A sandbox that waits in it is not added again."""

    _queue: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue, init=False)
    _waiting: set[str] = field(default_factory=set, init=False)

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
