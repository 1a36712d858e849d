"""Clients that hold sandboxes. When the last one is gone, a sandbox bound to them is left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.leases import NOT_LEFT

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Leases
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

# A program between client and supervisor may end a connection that is silent for a minute.
BEAT_S = 20.0
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Holds:
    """Notes which sandboxes are held. ``LeaseExpiry`` ends sandboxes that their clients left behind."""

    inventory: Inventory
    leases: Leases
    tasks: Tasks
    _over: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def waiting(self) -> bool:
        """Whether a client holds a sandbox, or an abandoned sandbox is still to be erased."""
        sandboxes = self.inventory.sandboxes()
        return any(sandbox.holders or sandbox.row.left_boot_s is not None for sandbox in sandboxes)

    async def start(self) -> None:
        """Begin. Clients that held sandboxes under an earlier supervisor get time to come back."""
        for sandbox in self.inventory.sandboxes():
            if sandbox.row.is_bound and sandbox.row.left_boot_s is None:
                await self.inventory.change(sandbox, **self.leases.left_now())

    def close(self) -> None:
        """End the calls that hold sandboxes. Their sandboxes do not count as left behind by that."""
        self._over.set()

    async def hold(self, sandbox: Sandbox, *, binds: bool) -> AsyncGenerator[bool]:
        """Hold a sandbox for as long as this is iterated over. It yields at once, and then every 20 seconds.

        The first time it yields True.

        Args:
            binds: Whether the sandbox ends with its holders from now on.
        """
        sandbox.holders += 1
        try:
            async with sandbox.lock:
                await self._keep_locked(sandbox, binds=binds)
            is_first = True
            while sandbox.row.state != "killed":
                yield is_first
                is_first = False
                try:
                    async with asyncio.timeout(BEAT_S):
                        await self._over.wait()
                except TimeoutError:
                    continue
                return
        finally:
            sandbox.holders -= 1
            if not self._over.is_set() and not sandbox.holders and sandbox.row.is_bound:
                self.tasks.spawn(self._leave(sandbox))

    async def _keep_locked(self, sandbox: Sandbox, *, binds: bool) -> None:
        row = sandbox.row
        left = row.left_boot_s is not None
        if row.state != "killed" and (left or (binds and not row.is_bound)):
            await self.inventory.change(sandbox, is_bound=row.is_bound or binds, **NOT_LEFT)
        # a holder that only looks leaves the sandbox again, but a client that uses it meanwhile keeps it
        sandbox.was_left = not binds and (left or sandbox.was_left)

    async def _leave(self, sandbox: Sandbox) -> None:
        try:
            async with sandbox.lock:
                row = sandbox.row
                if row.is_bound and row.left_boot_s is None and row.state != "killed" and not sandbox.holders:
                    await self.inventory.change(sandbox, **self.leases.left_now())
                    sandbox.was_left = False
        except AtollError as error:
            _log.warning("cannot note that sandbox %s was left behind: %s", sandbox.sandbox_id, error)


def is_left(sandbox: Sandbox) -> bool:
    """Whether a sandbox was left behind, and no client but its present holders has come since."""
    row = sandbox.row
    return row.is_bound and row.state != "killed" and (row.left_boot_s is not None or sandbox.was_left)


async def keep_locked(inventory: Inventory, sandbox: Sandbox) -> None:
    """Note that a client uses a sandbox. A sandbox that was left behind is then bound to no client.

    The caller holds the sandbox's lock.
    """
    if not is_left(sandbox):
        return
    try:
        await inventory.change(sandbox, is_bound=False, **NOT_LEFT)
        sandbox.was_left = False
    except AtollError as error:  # its disk may be full, and it can be used all the same
        _log.warning("cannot note that sandbox %s is used again: %s", sandbox.sandbox_id, error)
