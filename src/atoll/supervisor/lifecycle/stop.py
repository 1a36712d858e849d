"""Ends a sandbox's processes and keeps its disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.errors import AtollError, DeadlineError
from atoll.host import sync_tree, to_the_end
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.state.leases import NO_LEASE

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.crashes import Crashes
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.trash import Trash
    from atoll.types import SleepCause

# The host stops a guest that keeps its kernel busy for longer.
_FROZEN_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class PowerOff:
    """Puts sandboxes to sleep without their memory. The caller holds the sandbox's lock."""

    inventory: Inventory
    paths: Paths
    running_machines: RunningMachines
    sandbox_links: SandboxLinks
    agents: Agents
    crashes: Crashes
    trash: Trash

    async def stop(
        self, sandbox: Sandbox, cause: SleepCause, wakes_at: float | None
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """Flush the writes of a running sandbox, and put it to sleep with only its disk.

        Durable on return.

        Args:
            cause: Why it is stopped.
            wakes_at: When it is to start by itself, in Unix seconds.

        Returns the work that remains: ending the machine.

        Postcondition: on any exception the sandbox runs, or has crashed.
        """
        running = sandbox.require_running()
        running.hang_up()
        try:
            await running.alive(self._settle(running), sandbox.sandbox_id)
            # From here on the disk counts: if the supervisor dies, the next one ends the machine.
            await self.inventory.change(
                sandbox,
                durable=True,
                state="suspended",
                sleep_cause=cause,
                wakes_at=wakes_at,
                has_memory=False,
                machine=None,
                machine_id=None,
                link_id=None,
                **NO_LEASE,
            )
        except BaseException:
            await to_the_end(self._undo(sandbox, running))
            if sandbox.row.state == "crashed":
                raise running.lost(sandbox.sandbox_id) from None
            raise
        sandbox.running = None
        running.leave()
        return partial(self._leave, running)

    async def drop_memory(self, sandbox: Sandbox) -> None:
        """Erase the checkpoint of a sleeping sandbox, and the connections that it had."""
        link = await self.sandbox_links.waiting(sandbox)
        await self.inventory.change(sandbox, durable=True, has_memory=False, link_id=None)
        sandbox.link = None
        self.trash.take(self.paths.checkpoint(sandbox.sandbox_id))
        if link is not None:
            await link.aclose()

    async def _settle(self, running: RunningMachine) -> None:
        """Flush the guest's writes to the host's disk, and freeze the guest.

        This gives up after some seconds on a guest that does not answer. As in a power cut, fsynced data
        survives.
        """
        try:
            if running.unresponsive_since is None:
                await self.agents.flush(running.link)
        except (AtollError, OSError) as error:
            _log.warning("the guest of machine %s did not flush: %s", running.machine.machine_id, error)
        try:
            await running.freeze(within_s=_FROZEN_S)
        except DeadlineError as error:
            _log.warning("the machine %s is ended as it runs: %s", running.machine.machine_id, error)
        await asyncio.to_thread(sync_tree, running.disk)

    async def _undo(self, sandbox: Sandbox, running: RunningMachine) -> None:
        await thaw_or_end(running)
        if running.gone.is_set():
            await self.crashes.crashed_locked(sandbox, running, "it ended while it was being stopped")

    async def _leave(self, running: RunningMachine) -> None:
        await self.running_machines.end(running)
        try:
            await running.link.aclose()
        except (AtollError, OSError) as error:
            _log.warning("cannot remove the network of a stopped sandbox: %s", error)
