"""The sandboxes that clients recently asked for: their constant properties, and the way in."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from dataclasses import dataclass

from atoll import AsyncSandbox, SandboxInfo
from atoll.errors import SandboxNotFoundError
from atoll.server.e2b.attributes import HTTPS_PORTS, ports_of
from atoll.server.tokens import Tokens

_KEPT = 10_000
_ASKED_AT_ONCE = 16


@dataclass(frozen=True)
class CachedSandbox:
    """A sandbox that clients asked for.

    Args:
        handle: Dials the sandbox.
        team: The team that owns the sandbox.
        access_token: The token for its programs and files; None if these need no token.
        traffic_token: The token for its other ports; None if these are public.
        template: The template it was made from, as clients know it.
        mask_host: The ``Host`` that servers inside see, with ``${PORT}`` for the port; None means the
            client's.
        https_ports: Ports on which servers inside speak HTTPS.
    """

    handle: AsyncSandbox
    team: str | None
    access_token: str | None
    traffic_token: str | None
    template: str
    mask_host: str | None
    https_ports: frozenset[int]

    async def dial(self, port: int) -> socket.socket:
        """Connect to one of the sandbox's ports. A sleeping sandbox wakes first, if its owner wants that."""
        return await self.handle.ports.dial(port)


class SandboxCache:
    """Looks sandboxes up once, and remembers the latest ones.

    Args:
        tokens: Makes the sandboxes' tokens.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._kept: OrderedDict[str, CachedSandbox] = OrderedDict()
        # strangers may ask for ids that never existed
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def get(self, sandbox_id: str) -> CachedSandbox:
        """Return the sandbox with exactly this id, if it has a team. Any other is for this machine only.

        Raises:
            SandboxNotFoundError: There is no such sandbox.
        """
        sandbox = self._kept.get(sandbox_id)
        if sandbox is not None:
            self._kept.move_to_end(sandbox_id)
            return sandbox
        async with self._asking:
            info = await AsyncSandbox.get(sandbox_id)
        # a name may look like an id
        if info.sandbox_id != sandbox_id or info.team is None:
            raise SandboxNotFoundError(f"there is no sandbox {sandbox_id}", sandbox_id=sandbox_id)
        sandbox = self._kept[sandbox_id] = self._of(info)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return sandbox

    def forget(self, sandbox_id: str) -> None:
        """Look the sandbox up again next time."""
        self._kept.pop(sandbox_id, None)

    def _of(self, info: SandboxInfo) -> CachedSandbox:
        told = info.attributes
        return CachedSandbox(
            handle=AsyncSandbox.of(info),
            team=info.team,
            access_token=None if told.get("e2b_secure") == "0" else self._tokens.access(info.sandbox_id),
            traffic_token=self._tokens.traffic(info.sandbox_id) if info.ports == "closed" else None,
            template=told.get("e2b_template", info.image),
            mask_host=told.get("e2b_mask_host"),
            https_ports=frozenset(ports_of(told.get(HTTPS_PORTS, ""))),
        )
