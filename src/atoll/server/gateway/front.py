"""The entrance of the gateway: where a request goes, whether it may, and the refusal if it may not."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from starlette.types import Receive, Scope, Send

from atoll.errors import AtollError
from atoll.server.auth.access_log import note
from atoll.server.gateway.asked import Asked
from atoll.server.gateway.doors import admitted
from atoll.server.gateway.exchange import Exchange
from atoll.server.gateway.hosts import BadHostError, Target, named, route
from atoll.server.gateway.known import Known, KnownSandboxes
from atoll.server.gateway.refusals import Rejection, rejection_of
from atoll.server.gateway.tunnel import Tunnel
from atoll.server.gateway.unnamed import Unnamed, is_unnamed
from atoll.server.gateway.wires import Wires
from atoll.server.parts import Parts


class Gateway:
    """Answers the requests that are for sandboxes.

    Args:
        parts: The server's domain and tokens.
    """

    def __init__(self, parts: Parts) -> None:
        self._domain = parts.settings.domain
        self._patience_s = parts.settings.body_timeout_s
        self._known = KnownSandboxes(parts.tokens)
        self._unnamed = Unnamed(parts.tokens)
        self._wires = Wires()

    async def take(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request if it is for a sandbox. Returns False to leave it to the API.

        Raises:
            CutError: The answer has begun and cannot be finished.
        """
        last = dict(scope["headers"])
        try:
            target = await self._target(scope, last)
            if target is None:
                return False
            noted = note()
            noted.route, noted.sandbox_id = "gateway", target.sandbox_id
            asked = Asked.of(scope, target, last, self._patience_s)
            await self._pass(asked, scope["type"], receive, send)
        except BadHostError as error:
            await _reject(Rejection(400, str(error)), scope, last, send)
        except Rejection as rejection:
            await _reject(rejection, scope, last, send)
        return True

    def close(self) -> None:
        """Close the idle connections into sandboxes."""
        self._wires.close()

    async def _target(self, scope: Scope, last: dict[bytes, bytes]) -> Target | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or scope.get("method") == "CONNECT":
            raise Rejection(400, "Invalid host")
        found = route(hosts[0].decode("latin-1"), self._domain)
        if isinstance(found, Target):
            return found
        if found == "unknown":
            raise Rejection(421, "This server does not serve that host")
        if found == "api":
            return None
        target = named(last)
        if target is None and is_unnamed(scope):
            return await self._unnamed.target(scope)
        return target

    async def _pass(self, asked: Asked, kind: str, receive: Receive, send: Send) -> None:
        noted = note()
        noted.route = "gateway"
        known = await self._look_up(asked.target)
        noted.sandbox_id, noted.team = asked.target.sandbox_id, known.team
        asked = replace(admitted(asked, known, time.time()), template=known.template)
        if kind == "websocket":
            await Tunnel(asked, known, self._wires, receive, send).run()
        else:
            await Exchange(asked, known, self._wires, receive, send).run()

    async def _look_up(self, target: Target) -> Known:
        try:
            return await self._known.get(target.sandbox_id)
        except AtollError as error:
            raise rejection_of(error, target) from None


async def _reject(rejection: Rejection, scope: Scope, last: dict[bytes, bytes], send: Send) -> None:
    headers, body = rejection.answer(last.get(b"user-agent", b""))
    if scope["http_version"] != "2" and (b"content-length" in last or b"transfer-encoding" in last):
        # the rest of the body is not read, so no further request can follow on the connection
        headers.append((b"connection", b"close"))
    if scope.get("method") == "HEAD":
        body = b""
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    with contextlib.suppress(OSError):  # the client disconnected
        await send({"type": f"{kind}.start", "status": rejection.status, "headers": headers})
        await send({"type": f"{kind}.body", "body": body})
