"""Removes the links of sleeping sandboxes once their last connection has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.state.registry import Registry

_LOOK_S = 30.0


class SleepingLinks:
    """Looks at the links that sleeping sandboxes hold.

    Args:
        registry: The sandboxes.
        sandbox_links: Removes links that hold no connection.
        look_s: Seconds from one look to the next.
    """

    def __init__(self, registry: Registry, sandbox_links: SandboxLinks, look_s: float = _LOOK_S) -> None:
        self._registry = registry
        self._sandbox_links = sandbox_links
        self._look_s = look_s

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """Look once. One with an operation in progress waits for the next look."""
        for sandbox in self._registry.sandboxes():
            if sandbox.link is not None and sandbox.row.state == "suspended" and not sandbox.lock.locked():
                async with sandbox.lock:
                    await self._sandbox_links.let_go(sandbox)
