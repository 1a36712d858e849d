"""The request to stop the supervisor."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False, repr=False)
class Stopping:
    """A flag set once by a client, a signal or idleness. ``__main__`` waits for it."""

    _asked: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    asleep: bool = field(default=False, init=False)

    def ask(self, *, asleep: bool = False) -> None:
        """Ask the supervisor to stop. With ``asleep``, no sandbox runs once it has stopped."""
        self.asleep |= asleep
        self._asked.set()

    async def asked(self) -> None:
        """Return when the supervisor is asked to stop."""
        await self._asked.wait()
