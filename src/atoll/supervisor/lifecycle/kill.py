"""Kills sandboxes: ends them and erases their state."""

from __future__ import annotations

import logging

from atoll.errors import AtollError
from atoll.host import to_the_end
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.state.registry import Sandbox
from atoll.supervisor.storage.trash import erase

_log = logging.getLogger(__name__)


class Kills:
    """Kills sandboxes.

    Args:
        parts: What sandboxes are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def kill(self, sandbox: Sandbox) -> None:
        """End the sandbox, in any state, and erase its disk and memory. This is durable when it returns.

        Its snapshots stay. An operation in progress on it fails.
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
        """Do what ``kill`` does. The caller holds the sandbox's lock."""
        if sandbox.row.state == "killed":
            return
        await self._parts.registry.change(sandbox, durable=True, state="killed", name=None)
        try:
            with self._parts.registry.pins.during(sandbox.sandbox_id):
                await to_the_end(self.finish(sandbox))
        except (AtollError, OSError) as error:
            # The sandbox never comes back: its row says so until `gc` or the next supervisor has erased the
            # rest.
            _log.warning("sandbox %s is killed but not erased: %s", sandbox.sandbox_id, error)

    async def finish(self, sandbox: Sandbox) -> None:
        """Erase what is left of a sandbox whose row says that it was killed."""
        running = sandbox.running
        if running is not None:
            await self._parts.running_machines.end(running)
        try:
            link = running.link if running is not None else await self._parts.waiting_link(sandbox)
            sandbox.running = sandbox.link = None
            if link is not None:
                await link.aclose()
        except (AtollError, OSError) as error:
            _log.warning("the network of sandbox %s is not removed: %s", sandbox.sandbox_id, error)
        await erase(self._parts.paths.sandbox(sandbox.sandbox_id))
        await self._parts.registry.forget(sandbox)
        await self._parts.layer_gc.collect()
