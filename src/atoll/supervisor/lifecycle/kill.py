"""Kills sandboxes: ends them and erases their state."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import to_the_end
from atoll.supervisor.state.sandbox import Sandbox

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.layer_gc import LayerGC
    from atoll.supervisor.storage.trash import Trash

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Kills:
    """Kills sandboxes."""

    inventory: Inventory
    paths: Paths
    running_machines: RunningMachines
    sandbox_links: SandboxLinks
    layer_gc: LayerGC
    trash: Trash

    async def kill(self, sandbox: Sandbox) -> None:
        """End the sandbox, in any state, and give up its disk and memory. This is durable at return.

        The files are erased soon after that. The snapshots stay. An operation in progress on the sandbox
        fails.
        """
        if sandbox.lock.locked() and sandbox.running is not None:
            # The holder of the lock may be waiting for this guest.
            sandbox.running.killed = True
            try:
                await sandbox.running.machine.kill()
            except (AtollError, OSError) as error:
                _log.warning("sandbox %s: %s", sandbox.sandbox_id, error)
        async with sandbox.lock:
            await self.kill_locked(sandbox)

    async def kill_locked(self, sandbox: Sandbox) -> None:
        """Do the work of ``kill``. The caller holds the sandbox's lock."""
        if sandbox.row.state == "killed":
            return
        await self.inventory.change(sandbox, durable=True, state="killed", name=None)
        await self.clear(sandbox)

    async def clear(self, sandbox: Sandbox) -> None:
        """Do the work of ``finish``. The caller holds the sandbox's lock, and a failure is only logged."""
        try:
            with self.inventory.pins.during(sandbox.sandbox_id):
                await to_the_end(self.finish(sandbox))
        except (AtollError, OSError) as error:
            # The sandbox never comes back: its row says so until `gc` or the next supervisor has erased the
            # rest.
            _log.warning(
                "sandbox %s is killed, but its files cannot be erased: %s", sandbox.sandbox_id, error
            )

    async def finish(self, sandbox: Sandbox) -> None:
        """Remove the rest of a sandbox whose row says that it was killed. Its files are erased soon."""
        running = sandbox.running
        if running is not None:
            await self.running_machines.end(running)
        try:
            link = running.link if running is not None else await self.sandbox_links.waiting(sandbox)
            sandbox.running = sandbox.link = None
            if link is not None:
                await link.aclose()
        except (AtollError, OSError) as error:
            _log.warning("cannot remove the network of sandbox %s: %s", sandbox.sandbox_id, error)
        self.sandbox_links.forget(sandbox)
        await self.trash.take_unmounted(self.paths.sandbox(sandbox.sandbox_id))
        await self.inventory.forget(sandbox)
        await self.layer_gc.collect(wait=False)
        await self.trash.make_room()
