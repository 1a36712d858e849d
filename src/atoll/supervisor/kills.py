"""Ending sandboxes for good."""

from __future__ import annotations

from atoll.supervisor.erasing import erase
from atoll.supervisor.layersweep import drop_unused_layers
from atoll.supervisor.parts import Parts
from atoll.supervisor.table import Sandbox


class Kills:
    """Kills sandboxes.

    Args:
        parts: What they are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def kill(self, sandbox: Sandbox) -> None:
        """End it and erase its disk and memory, whatever state it is in; durable when this returns.

        Its snapshots stay. An operation that it is in the middle of fails.
        """
        if sandbox.lock.locked() and sandbox.berth is not None:
            # Whoever holds the lock may be waiting for this guest.
            await sandbox.berth.machine.kill()
        async with sandbox.lock:
            if sandbox.row.state == "killed":
                return
            await self._parts.table.change(sandbox, durable=True, state="killed", name=None)
            await self.finish(sandbox)

    async def finish(self, sandbox: Sandbox) -> None:
        """Erase what is left of a sandbox whose row says killed."""
        berth, link = sandbox.berth, None
        if berth is None:
            link = await self._parts.waiting_link(sandbox)
        sandbox.berth = sandbox.link = None
        if berth is not None:
            await self._parts.berths.end(berth)
            await berth.link.aclose()
        elif link is not None:
            await link.aclose()
        await erase(self._parts.places.sandbox(sandbox.sandbox_id))
        await self._parts.table.forget(sandbox)
        await drop_unused_layers(self._parts)
