"""Ends the open requests of a revoked key: answers that go on, uploads, and WebSockets."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.server.auth.access import Access
from atoll.server.auth.access_log import note
from atoll.server.e2b.answers import Refusal, refused

# The answer about a key may be this old too, so a revoked key's streams end within twice this time.
LOOK_S = 2.0
_POLICY_VIOLATION = 1008
_ENDED = "the API key is not valid any more"


class KeyEndedError(Exception):
    """Reports that an answer ends early because its key has ended. The HTTP server then breaks it off."""


def ending_with_key(app: ASGIApp, access: Access, look_s: float = LOOK_S) -> ASGIApp:
    """End each request to an application whose key is revoked, or expires, while it lasts.

    Args:
        app: The application. It notes the key of each request that it lets in.
        access: Tells whether a key is still valid.
        look_s: How often to ask, in seconds.
    """

    async def ending(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noticed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(None) as bound:
                with contextlib.closing(_Watch(scope, access, look_s, bound)):
                    await app(scope, receive, noticed)
            return
        except TimeoutError:
            if not bound.expired():
                raise
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": _ENDED})
        elif begun:
            raise KeyEndedError(_ENDED)
        else:
            await refused(Refusal(401, _ENDED, headers={"Connection": "close"}))(scope, receive, send)

    return ending


class _Watch:
    """Looks now and then whether the key of a request has ended. Most requests are over before the first look.

    Args:
        scope: The request's scope.
        access: Tells whether a key is still valid.
        look_s: How often to ask, in seconds.
        bound: The time limit of the request, which expires when the key has ended.
    """

    def __init__(self, scope: Scope, access: Access, look_s: float, bound: asyncio.Timeout) -> None:
        self._headers = Headers(scope=scope)
        self._access = access
        self._look_s = look_s
        self._bound = bound
        self._noted = note()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(look_s, self._begin)

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while True:
            if self._noted.key_id is not None and await self._access.has_ended(self._headers, self._look_s):
                break
            await asyncio.sleep(self._look_s)
        self._bound.reschedule(asyncio.get_running_loop().time())
