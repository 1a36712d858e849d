"""Finds the sandbox of signed file addresses that name none: the one whose token made the signature."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Scope

from atoll import AsyncSandbox
from atoll.errors import AtollError
from atoll.protocol import AGENT_PORT
from atoll.server.auth.access_log import note
from atoll.server.auth.buckets import Buckets, network_of, retry_after
from atoll.server.gateway.hosts import Target
from atoll.server.gateway.rejections import Rejection
from atoll.server.gateway.signatures import BadSignatureError, Operation, Signed, is_signed
from atoll.server.tokens import Tokens

_OPERATIONS: dict[str, Operation] = {"GET": "read", "HEAD": "read", "POST": "write"}
_MOST = 20_000
# The false signatures that one address may send: this many at once, and a further one each second.
_WRONG_BURST = 50.0
_WRONG_RATE_S = 1.0
# After this many sandboxes, other tasks get a turn.
_AT_A_TIME = 500


def names_no_sandbox(scope: Scope) -> bool:
    """Tell whether a request is for a file of the still unknown sandbox that signed it."""
    return (
        scope["raw_path"] == b"/files"
        and scope.get("method") in _OPERATIONS
        and is_signed(scope["query_string"])
    )


class SignatureLookup:
    """Finds the sandbox of a signature.

    Args:
        tokens: Makes the tokens that sign addresses.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._listed: list[tuple[str, str]] = []
        self._listed_at = float("-inf")
        self._pause_s = 0.0
        self._wrong = Buckets()
        self._lock = asyncio.Lock()

    async def target(self, scope: Scope) -> Target:
        """Return the agent's port of the sandbox whose token signed this request.

        Raises:
            Rejection: No token signed it, the signature is for something else or expired, or its network sent
                too many false ones.
        """
        arrived = time.monotonic()
        try:
            signed = Signed(scope["query_string"], _OPERATIONS[scope["method"]])
            found = await self._signer(signed)
            if found is None:
                found = await self._signer_of_all(signed, arrived)
            signed.query(time.time())
        except BadSignatureError as error:
            raise Rejection(401, str(error)) from None
        return Target(found, AGENT_PORT)

    async def _signer(self, signed: Signed) -> str | None:
        for count, (sandbox_id, token) in enumerate(self._listed):
            if signed.is_by(token):
                return sandbox_id
            if count % _AT_A_TIME == _AT_A_TIME - 1:
                await asyncio.sleep(0)
        return None

    async def _signer_of_all(self, signed: Signed, arrived: float) -> str:
        peer = network_of(note().peer)
        wait_s = self._wrong.wait_s(peer, _WRONG_RATE_S, _WRONG_BURST, arrived)
        if wait_s:
            headers = [(name.lower().encode(), value.encode()) for name, value in retry_after(wait_s).items()]
            raise Rejection(429, "Too many wrong signatures", headers=headers)
        # counted before the work, so that many at once do not pass together
        self._wrong.take(peer, _WRONG_RATE_S, _WRONG_BURST, arrived)
        await self._list_after(arrived)
        found = await self._signer(signed)
        if found is None:
            raise BadSignatureError("invalid signature")
        self._wrong.give(peer, _WRONG_BURST)
        return found

    async def _list_after(self, moment: float) -> None:
        """Make sure that the list is no older than ``moment``.

        A single list serves all guesses that arrive meanwhile.
        """
        async with self._lock:
            if self._listed_at > moment:
                return
            # making lists takes at most half of the time, however many requests come
            await asyncio.sleep(max(0.0, self._listed_at + 2 * self._pause_s - time.monotonic()))
            began = time.monotonic()
            try:
                infos = [info async for info in AsyncSandbox.list(limit=_MOST)]
            except AtollError:
                raise Rejection(503, "The server is starting", headers=[(b"retry-after", b"1")]) from None
            self._listed = [
                (info.sandbox_id, self._tokens.access(info.sandbox_id))
                for info in infos
                if info.team is not None
            ]
            self._listed_at, self._pause_s = began, time.monotonic() - began
