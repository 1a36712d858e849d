"""Signed addresses of files that name no sandbox: the one whose token made the signature is meant."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Scope

from atoll import AsyncSandbox
from atoll.errors import AtollError
from atoll.server.gateway.hosts import AGENT_PORT, Target
from atoll.server.gateway.refusals import Rejection
from atoll.server.gateway.signatures import BadSignatureError, Operation, checked, is_signed
from atoll.server.tokens import Tokens

_OPERATIONS: dict[str, Operation] = {"GET": "read", "HEAD": "read", "POST": "write"}
_MOST = 20_000


def is_unnamed(scope: Scope) -> bool:
    """Whether a request is for a file of whatever sandbox signed it."""
    return (
        scope["raw_path"] == b"/files"
        and scope.get("method") in _OPERATIONS
        and is_signed(scope["query_string"])
    )


class Unnamed:
    """Finds the sandbox of a signature.

    Args:
        tokens: Makes the tokens that sign.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._listed: list[tuple[str, str]] = []
        self._listed_at = float("-inf")
        self._lock = asyncio.Lock()

    async def target(self, scope: Scope) -> Target:
        """The agent's port of the sandbox whose token signed this request.

        Raises:
            Rejection: None did, or it did for something else or another time.
        """
        arrived = time.monotonic()
        found = self._signer(scope)
        if found is None:
            await self._list_after(arrived)
            found = self._signer(scope)
        if found is None:
            raise Rejection(401, "invalid signature")
        return Target(found, AGENT_PORT)

    def _signer(self, scope: Scope) -> str | None:
        query, operation, now_s = scope["query_string"], _OPERATIONS[scope["method"]], time.time()
        for sandbox_id, token in self._listed:
            try:
                checked(query, operation, token, now_s)
            except BadSignatureError as error:
                if str(error) == "invalid signature":
                    continue
                raise Rejection(401, str(error)) from None
            return sandbox_id
        return None

    async def _list_after(self, moment: float) -> None:
        """Have a list that is no older than a moment: one serves all guesses that arrive while it is made."""
        async with self._lock:
            if self._listed_at > moment:
                return
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
            self._listed_at = began
