"""Tells guests how much memory they have: a guest ends its biggest program before that is full."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.guest import GuestInit

if TYPE_CHECKING:
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.types import Limits

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class GuestMemory:
    """Tells guests their amount of memory."""

    agents: Agents
    default_limits: Limits

    async def tell(self, sandbox: Sandbox, limits: Limits) -> None:
        """Tell a running guest its memory.

        Raises:
            AtollError: The guest does not answer.
        """
        running = sandbox.require_running()
        memory_mib = limits.over(self.default_limits).memory_mib or 0
        told = self.agents.init(running.link, GuestInit(memory_bytes=memory_mib << 20))
        await running.alive(told, sandbox.sandbox_id)
        sandbox.memory_untold = False

    async def tell_if_changed(self, sandbox: Sandbox) -> None:
        """Tell a guest that runs again its memory, if that may have changed while it was paused."""
        if sandbox.memory_untold:
            try:
                await self.tell(sandbox, sandbox.row.limits)
            except AtollError as error:  # the next user of a crashed guest hears of that
                _log.warning("cannot tell sandbox %s its amount of memory: %s", sandbox.sandbox_id, error)
