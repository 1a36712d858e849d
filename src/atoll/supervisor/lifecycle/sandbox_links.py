"""The network links of sandboxes that have no machine, or get one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from atoll.errors import AtollError
from atoll.supervisor.lifecycle.checkpoint_files import read_flows

if TYPE_CHECKING:
    from atoll.network import Link, Links
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.sandbox import Sandbox

_log = logging.getLogger(__name__)


class SuspendedWatcher(Protocol):
    """Watches suspended sandboxes, and wakes a sandbox that gets data."""

    def watch(self, sandbox: Sandbox) -> None:
        """Watch a suspended sandbox that has kept its link, if data is to wake it. Idempotent."""


@dataclass(eq=False, repr=False)
class SandboxLinks:
    """Finds and prepares the links of sandboxes."""

    inventory: Inventory
    paths: Paths
    links: Links
    egress: EgressControl
    watcher: SuspendedWatcher

    async def waiting(self, sandbox: Sandbox) -> Link | None:
        """The link that a sandbox without a machine kept, or None. An earlier supervisor may have left it."""
        link = sandbox.link
        if link is None and sandbox.row.link_id is not None:
            link = await self.links.adopt(sandbox.row.link_id)
        return link

    async def let_go(self, sandbox: Sandbox) -> None:
        """Remove the link of a sleeping sandbox, unless it holds a connection, on which data may wake it.

        The caller holds the lock. The sandbox wakes on another link, where its guest has the same address.
        """
        link = sandbox.link
        if link is None or sandbox.row.state != "suspended" or sandbox.row.napping:
            return
        try:
            if not await link.holds_nothing(read_flows(self.paths.checkpoint(sandbox.sandbox_id))):
                self.watcher.watch(sandbox)
                return
            # Store this while the link still exists: the next supervisor removes any link that no row names.
            await self.inventory.change(sandbox, link_id=None)
            sandbox.link = None
            await link.aclose()
        except (AtollError, OSError) as error:
            _log.warning("cannot remove the network of a suspended sandbox: %s", error)

    def forget(self, sandbox: Sandbox) -> None:
        """Forget the counts of a sandbox that is gone for ever."""
        self.egress.forget(sandbox.sandbox_id)

    async def take(self, sandbox: Sandbox) -> tuple[Link, bool]:
        """The link that waits for the sandbox and True, or a new link and False. Its policy is set."""
        link = await self.waiting(sandbox)
        kept = link is not None
        if link is None:
            link = await self.links.take()
        else:
            await link.prepare()
        sandbox.link = None
        self.egress.govern(link, sandbox.row)
        if link.was_cut and sandbox.unplugged is None:  # the sandbox was replugged in its sleep
            await link.mend()
        return link, kept
