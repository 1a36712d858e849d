"""Waits for the edge to have told everything so far."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False, repr=False)
class Hearing:
    """Those that wait. The edge answers them in their order."""

    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)

    async def wait(self, ask: Callable[[], None], within_s: float) -> None:
        """Ask, and wait for the answer. After ``within_s`` seconds nobody knows more."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await told

    def answered(self) -> None:
        """Let the first one go on."""
        if self._waiting and not (told := self._waiting.popleft()).done():
            told.set_result(None)

    def lost(self) -> None:
        """Let all go on: the edge has ended, and answers none of them."""
        while self._waiting:
            self.answered()
