"""Ending a sandbox's processes and keeping its disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.errors import AtollError
from atoll.host import sync_tree, to_the_end
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.state.leases import NO_LEASE

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.parts import Parts
    from atoll.supervisor.machines.running_machine import Berth
    from atoll.supervisor.state.registry import Sandbox

_log = logging.getLogger(__name__)


class PowerOff:
    """Has sandboxes sleep without memory; the caller holds the sandbox's lock.

    Args:
        parts: What sandboxes are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def stop(self, sandbox: Sandbox) -> Callable[[], Coroutine[Any, Any, None]]:
        """Flush what a running one has written, and have it sleep with its disk alone; durable when this returns.

        What is left to be done, which is to end what it ran on, is returned.

        Postcondition: on any exception it runs, or has crashed.
        """
        berth = self._parts.berth_of(sandbox)
        berth.hang_up()
        try:
            await berth.alive(self._settle(berth), sandbox.sandbox_id)
            # From here on the disk counts: should the supervisor die, the next one ends the machine.
            await self._parts.table.change(
                sandbox,
                durable=True,
                state="suspended",
                has_memory=False,
                machine=None,
                machine_id=None,
                link_id=None,
                **NO_LEASE,
            )
        except BaseException:
            await to_the_end(self._undo(sandbox, berth))
            if sandbox.row.state == "crashed":
                raise berth.lost(sandbox.sandbox_id) from None
            raise
        sandbox.berth = None
        berth.leave()
        return partial(self._leave, berth)

    async def drop_memory(self, sandbox: Sandbox) -> None:
        """Erase the memory of one that sleeps, and with it the connections that it had."""
        link = await self._parts.waiting_link(sandbox)
        await self._parts.table.change(sandbox, durable=True, has_memory=False, link_id=None)
        sandbox.link = None
        self._parts.trash.take(self._parts.places.checkpoint(sandbox.sandbox_id))
        if link is not None:
            await link.aclose()

    async def _settle(self, berth: Berth) -> None:
        """Have all that the guest has written on the host's disk, and the guest stand still."""
        try:
            await self._parts.agents.flush(berth.link)
        except (AtollError, OSError) as error:
            # As at a power cut: what was fsynced is there.
            _log.warning("the guest of machine %s did not flush: %s", berth.machine.machine_id, error)
        await berth.freeze()
        await asyncio.to_thread(sync_tree, berth.disk)

    async def _undo(self, sandbox: Sandbox, berth: Berth) -> None:
        await thaw_or_end(berth)
        if berth.gone.is_set():
            await self._parts.crashes.crashed_locked(sandbox, berth, "it ended while it was being stopped")

    async def _leave(self, berth: Berth) -> None:
        await self._parts.berths.end(berth)
        try:
            await berth.link.aclose()
        except (AtollError, OSError) as error:
            _log.warning("the network of a stopped sandbox is not removed: %s", error)
