"""The lock of a sandbox, held while its state changes."""

from __future__ import annotations

import asyncio


class SandboxLock(asyncio.Lock):
    """A lock whose holder may leave work to be done: the next holder waits until that is finished."""

    _rest: asyncio.Task[None] | None = None

    def outlast(self, rest: asyncio.Task[None]) -> None:
        """Keep the lock until ``rest`` is done, however it ends.

        Only the holder calls this, once per turn.
        """
        self._rest = rest

    def release(self) -> None:
        """Release the lock, or leave that to the work that continues."""
        rest, self._rest = self._rest, None
        if rest is None:
            super().release()
        else:
            rest.add_done_callback(lambda _: super(SandboxLock, self).release())
