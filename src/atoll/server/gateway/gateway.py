"""The entrance of the gateway: where a request goes, whether it may, and the refusal if it may not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial

from starlette.types import Receive, Scope, Send

from atoll.errors import AtollError
from atoll.sdk import for_servers
from atoll.server.auth.access_log import note
from atoll.server.gateway.agent_calls import agent_call, seen
from atoll.server.gateway.authorization import authorized
from atoll.server.gateway.connection_pool import ConnectionPool
from atoll.server.gateway.exchange import CutError, Exchange
from atoll.server.gateway.hosts import BadHostError, Target, named, route
from atoll.server.gateway.links import LINK_ENDED, LinkCheck
from atoll.server.gateway.rejections import Rejection, rejection_of
from atoll.server.gateway.request import GatewayRequest
from atoll.server.gateway.resets import Resets
from atoll.server.gateway.sandbox_cache import CachedSandbox, SandboxCache
from atoll.server.gateway.signature_lookup import SignatureLookup, names_no_sandbox
from atoll.server.gateway.tunnel import Tunnel
from atoll.server.tokens import Tokens


class Gateway:
    """Answers the requests that are for sandboxes.

    Args:
        tokens: Makes and checks clients' tokens for one sandbox.
        domain: The server's domain; None means localhost alone.
        body_timeout_s: How long the body of a request may be silent.
    """

    def __init__(self, tokens: Tokens, *, domain: str | None, body_timeout_s: float) -> None:
        self._domain = domain
        self._patience_s = body_timeout_s
        self._sandboxes = SandboxCache(tokens)
        self._signatures = SignatureLookup(tokens)
        self._links = LinkCheck(tokens)
        self._connections = ConnectionPool()
        self._resets = Resets()

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
            request = GatewayRequest.of(scope, target, last, self._patience_s)
            await self._pass(request, scope["type"], receive, send)
        except BadHostError as error:
            await _reject(Rejection(400, str(error)), scope, last, send)
        except Rejection as rejection:
            await _reject(rejection, scope, last, send)
        except CutError as cut:
            if cut.abrupt and scope["http_version"].startswith("1") and scope["client"]:
                host, port = scope["client"]
                self._resets.reset((host, int(port)))
            raise
        return True

    def close(self) -> None:
        """Close the idle connections into sandboxes."""
        self._connections.close()

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
        if target is None and names_no_sandbox(scope):
            return await self._signatures.target(scope)
        return target

    async def _pass(self, request: GatewayRequest, kind: str, receive: Receive, send: Send) -> None:
        noted = note()
        noted.route = "gateway"
        sandbox = await self._look_up(request.target)
        noted.sandbox_id, noted.team = request.target.sandbox_id, sandbox.team
        now = time.time()
        opened = self._links.checked(request, now, is_socket=kind == "websocket")
        request = authorized(opened, sandbox, now)
        request = replace(request, template=sandbox.template)
        for_servers.call_for(f"a client of {sandbox.team} at {request.peer}")
        tell = partial(for_servers.tell, sandbox.handle)
        call = None if kind == "websocket" else agent_call(request, tell)
        if call is not None:
            receive, send = seen(call, receive, send)
        passing = (Tunnel if kind == "websocket" else Exchange)(
            request, sandbox, self._connections, receive, send
        )
        complete = False
        try:
            async with asyncio.timeout(_left_s(request, sandbox, now)) as bound:
                await passing.run()
            complete = True
        except TimeoutError:
            if not bound.expired():
                raise
            await passing.refuse(Rejection(403, LINK_ENDED, request.target))
        finally:
            if call is not None:
                call.ended(complete=complete)

    async def _look_up(self, target: Target) -> CachedSandbox:
        try:
            return await self._sandboxes.get(target.sandbox_id)
        except AtollError as error:
            raise rejection_of(error, target) from None


def _left_s(request: GatewayRequest, sandbox: CachedSandbox, now: float) -> float | None:
    """Return the seconds for which a request may last: until its link ends, if only that opened the port."""
    if request.opened_until is None or sandbox.traffic_token is None:
        return None
    return max(0.0, request.opened_until - now)


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
