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
_LISTED_FOR_S = 2.0
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
        query, operation = scope["query_string"], _OPERATIONS[scope["method"]]
        why = "invalid signature"
        now = time.time()
        for sandbox_id, token in await self._sandboxes():
            try:
                checked(query, operation, token, now)
            except BadSignatureError as error:
                if str(error) == "invalid signature":
                    continue
                raise Rejection(401, str(error)) from None
            return Target(sandbox_id, AGENT_PORT)
        raise Rejection(401, why)

    async def _sandboxes(self) -> list[tuple[str, str]]:
        """Ids and tokens, as of two seconds ago at most: one list serves many guesses."""
        async with self._lock:
            if time.monotonic() - self._listed_at > _LISTED_FOR_S:
                try:
                    infos = [info async for info in AsyncSandbox.list(limit=_MOST)]
                except AtollError:
                    raise Rejection(503, "The server is starting", headers=[(b"retry-after", b"1")]) from None
                self._listed = [
                    (info.sandbox_id, self._tokens.access(info.sandbox_id))
                    for info in infos
                    if info.team is not None
                ]
                self._listed_at = time.monotonic()
            return self._listed
