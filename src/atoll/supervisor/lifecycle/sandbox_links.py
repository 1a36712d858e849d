"""The network links of sandboxes that have no machine, or get one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.network import Link, Links
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.state.sandbox import Sandbox


class SandboxLinks:
    """Finds and prepares the links of sandboxes.

    Args:
        links: All links of the home.
        egress: Sets their policies.
    """

    def __init__(self, links: Links, egress: EgressControl) -> None:
        self._links = links
        self._egress = egress

    async def waiting(self, sandbox: Sandbox) -> Link | None:
        """The link that a sandbox without a machine kept, or None. An earlier supervisor may have left it."""
        link = sandbox.link
        if link is None and sandbox.row.link_id is not None:
            link = await self._links.adopt(sandbox.row.link_id)
        return link

    def forget(self, sandbox: Sandbox) -> None:
        """Forget what was counted about a sandbox that is gone for ever."""
        self._egress.forget(sandbox.sandbox_id)

    async def take(self, sandbox: Sandbox) -> tuple[Link, bool]:
        """The link that waits for the sandbox and True, or a new link and False. Its policy is set."""
        link = await self.waiting(sandbox)
        kept = link is not None
        if link is None:
            link = await self._links.take()
        else:
            await link.prepare()
        sandbox.link = None
        self._egress.govern(link, sandbox.row)
        if link.was_cut and sandbox.unplugged is None:  # it was replugged while it slept
            await link.mend()
        return link, kept
