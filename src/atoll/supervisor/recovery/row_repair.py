"""Brings the rows of sandboxes up to date with their fate."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from atoll.errors import AtollError
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox, with_losses

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class RowRepair:
    """Changes the rows of sandboxes that an earlier supervisor left."""

    inventory: Inventory

    async def change(self, sandbox: Sandbox, **changes: Any) -> None:
        """Change a row, at least in memory: a full disk must not prevent a kill."""
        try:
            await self.inventory.change(sandbox, **changes)
        except AtollError as error:
            _log.warning("cannot store the state of sandbox %s: %s", sandbox.sandbox_id, error)
            sandbox.row = sandbox.row.but(**changes)

    async def mark_crashed(self, sandbox: Sandbox, reason: str) -> None:
        """Mark a sandbox that does not run any more as crashed."""
        reason = with_losses(sandbox.row, reason)
        _log.warning("sandbox %s crashed: %s", sandbox.sandbox_id, reason)
        await self.change(
            sandbox,
            state="crashed",
            reason=reason,
            crashed_running=sandbox.row.awake,
            napping=False,
            machine=None,
            machine_id=None,
            link_id=None,
        )
