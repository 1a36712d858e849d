"""Tools that tell what a sandbox may reach. Only the operator can change that."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import Field

from atoll.mcp.tools.adding import Tools
from atoll.mcp.tools.arguments import Which
from atoll.mcp.workplace import Workplace
from atoll.tools import clipped

_MOST = 100


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    found = Network(workplace)
    tools.add(found.network_policy, title="Show the network policy", reads=True)
    tools.add(found.test_request, title="Test a request", reads=True)
    tools.add(found.network_log, title="Show network decisions", reads=True)


class Network:
    """Tells what a sandbox may reach.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def network_policy(self, sandbox: Which = None) -> str:
        """Show what the sandbox may reach, as JSON: a preset's name, or rules.

        The first rule that matches decides.
        """
        info = await (await self._workplace.sandbox(sandbox)).info()
        return clipped(msgspec.json.encode(info.network).decode())

    async def test_request(
        self,
        url: Annotated[
            str,
            Field(
                description="The address; tcp://HOST:PORT for a connection that is not HTTP.", min_length=1
            ),
        ],
        method: str = "GET",
        sandbox: Which = None,
    ) -> str:
        """Say whether a request from the sandbox would be allowed, and which rule decides. The server gets nothing."""
        verdict = await (await self._workplace.sandbox(sandbox)).egress.test(method, url)
        return msgspec.json.encode(verdict).decode()

    async def network_log(self, sandbox: Which = None) -> str:
        """Show the last decisions about the sandbox's connections and requests: read it when the network fails."""
        used = await self._workplace.sandbox(sandbox)
        kept = [msgspec.json.encode(each).decode() async for each in used.egress.decisions()]
        return clipped("\n".join(kept[-_MOST:])) or "no decisions yet"
