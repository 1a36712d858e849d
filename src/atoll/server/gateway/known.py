"""The sandboxes that clients asked for lately: what never changes of them, and the way in."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from dataclasses import dataclass

from atoll import AsyncSandbox, SandboxInfo
from atoll.errors import SandboxNotFoundError
from atoll.server.tokens import Tokens

_KEPT = 10_000
_ASKED_AT_ONCE = 16


@dataclass(frozen=True)
class Known:
    """One sandbox.

    Args:
        handle: Dials.
        team: Whose it is.
        access_token: What its programs and files need; None when they need nothing.
        traffic_token: What its other ports need; None when they are public.
        template: What it is made of, as its clients know it.
        mask_host: What servers inside see as ``Host``, with ``${PORT}`` for the port; None is what the client said.
    """

    handle: AsyncSandbox
    team: str | None
    access_token: str | None
    traffic_token: str | None
    template: str
    mask_host: str | None

    async def dial(self, port: int) -> socket.socket:
        """A connection to one of its ports; a sleeping sandbox wakes first, if its owner wants that."""
        return await self.handle.dial(port)


class KnownSandboxes:
    """Looks sandboxes up once, and remembers the last ones.

    Args:
        tokens: Makes their tokens.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._known: OrderedDict[str, Known] = OrderedDict()
        # strangers may ask for ids that never were
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def get(self, sandbox_id: str) -> Known:
        """The sandbox with this very id, if it belongs to a team: others are for this machine alone.

        Raises:
            SandboxNotFoundError: There is none.
        """
        known = self._known.get(sandbox_id)
        if known is not None:
            self._known.move_to_end(sandbox_id)
            return known
        async with self._asking:
            info = await AsyncSandbox.get(sandbox_id)
        # a name may look like an id
        if info.sandbox_id != sandbox_id or info.team is None:
            raise SandboxNotFoundError(f"there is no sandbox {sandbox_id}", sandbox_id=sandbox_id)
        known = self._known[sandbox_id] = self._of(info)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return known

    def forget(self, sandbox_id: str) -> None:
        """Look it up anew next time."""
        self._known.pop(sandbox_id, None)

    def _of(self, info: SandboxInfo) -> Known:
        told = info.attributes
        return Known(
            handle=AsyncSandbox.of(info),
            team=info.team,
            access_token=None if told.get("e2b_secure") == "0" else self._tokens.access(info.sandbox_id),
            traffic_token=(
                self._tokens.traffic(info.sandbox_id) if told.get("e2b_public_traffic") == "0" else None
            ),
            template=told.get("e2b_template", info.image),
            mask_host=told.get("e2b_mask_host"),
        )
