"""The wish that the supervisor leaves."""

from __future__ import annotations

import asyncio


class Stopping:
    """Set once, by a client, a signal or idleness; waited for by ``__main__``."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.asleep = False

    def ask(self, *, asleep: bool = False) -> None:
        """Want the supervisor to leave; ``asleep`` wants no sandbox to run when it has left."""
        self.asleep |= asleep
        self._asked.set()

    async def asked(self) -> None:
        """Return when somebody wants it to leave."""
        await self._asked.wait()
