"""Who may change a sandbox just now."""

from __future__ import annotations

import asyncio


class SandboxLock(asyncio.Lock):
    """A lock whose holder may leave something to be done that nobody else may meet: only then the next turn begins."""

    _rest: asyncio.Task[None] | None = None

    def outlast(self, rest: asyncio.Task[None]) -> None:
        """Let nobody have a turn before ``rest`` is done, however it ends. For the holder, once in a turn."""
        self._rest = rest

    def release(self) -> None:
        """End the turn, or leave it to what goes on."""
        rest, self._rest = self._rest, None
        if rest is None:
            super().release()
        else:
            rest.add_done_callback(lambda _: super(SandboxLock, self).release())
