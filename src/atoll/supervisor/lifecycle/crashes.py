"""Handles sandboxes whose processes died."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atoll.errors import AtollError
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox, crash_reason, with_losses
from atoll.supervisor.state.tasks import Tasks

if TYPE_CHECKING:
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.running_machine import RunningMachine

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Crashes:
    """Notices when a machine ends unexpectedly, and marks its sandbox ``crashed``."""

    inventory: Inventory
    running_machines: RunningMachines
    tasks: Tasks

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch a running machine that a sandbox has just got."""
        self.tasks.watch(self._following(sandbox, running))

    async def _following(self, sandbox: Sandbox, running: RunningMachine) -> None:
        await running.gone.wait()
        if not running.leaving:
            # At once, before anything is awaited: clients wait on these connections.
            running.hang_up()
        async with sandbox.lock:
            # If it was killed, the killing operation comes next.
            if sandbox.running is running and not running.leaving and not running.killed:
                await self.crashed_locked(sandbox, running, crash_reason(sandbox.row, running))

    async def crashed_locked(self, sandbox: Sandbox, running: RunningMachine, reason: str) -> None:
        """Free the sandbox's resources and mark it crashed. The caller holds its lock."""
        reason = with_losses(sandbox.row, reason)
        if not running.killed:
            _log.warning("sandbox %s crashed: %s", sandbox.sandbox_id, reason)
        # Clients that ask while the rest is being freed already get this answer.
        before = sandbox.row
        columns: dict[str, Any] = {"state": "crashed", "reason": reason, "crashed_running": before.awake}
        if before.state == "running":
            columns["stopped_at"] = self.inventory.now_s()
        sandbox.row = before.but(**columns)
        sandbox.running = None
        await self.running_machines.end(running)
        try:
            await running.link.aclose()
            await self.inventory.change(sandbox, machine=None, machine_id=None, link_id=None, **columns)
        except (AtollError, OSError) as error:
            # The sandbox has crashed all the same: a restarted supervisor sees that nothing runs.
            _log.warning("cannot store the crash of sandbox %s: %s", sandbox.sandbox_id, error)
