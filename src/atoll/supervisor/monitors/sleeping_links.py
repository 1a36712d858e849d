"""Removes the links of sleeping sandboxes once their last connection has ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.state.inventory import Inventory

_LOOK_S = 30.0


@dataclass(eq=False, repr=False)
class SleepingLinks:
    """Looks at the links that sleeping sandboxes hold.

    Args:
        look_s: Seconds from one look to the next.
    """

    inventory: Inventory
    sandbox_links: SandboxLinks
    look_s: float = _LOOK_S

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self.look_s)
            await self.look()

    async def look(self) -> None:
        """Look once. A sandbox with an operation in progress waits for the next look."""
        for sandbox in self.inventory.sandboxes():
            if sandbox.link is not None and sandbox.row.state == "suspended" and not sandbox.lock.locked():
                async with sandbox.lock:
                    await self.sandbox_links.let_go(sandbox)
