"""The routes of the remote SDK: ``/atoll/hello``, ``/atoll/v1/…`` and ``/atoll/v1/dial``."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from atoll.errors import NotFoundError
from atoll.host import Home
from atoll.protocol import (
    PROTOCOL_VERSION,
    REQUEST_HEADER,
    TRACE_HEADERS,
    LinkRequest,
    RemoteHello,
    caller_header,
    check_link,
    port_url,
)
from atoll.sdk import for_servers
from atoll.server.auth.access import Access, caller_name
from atoll.server.auth.access_log import note
from atoll.server.builds.builds import Builds
from atoll.server.builds.uploads import Uploads
from atoll.server.e2b.answers import read_body
from atoll.server.e2b.destinations import Range
from atoll.server.remote.allowed import OPERATIONS, Operation
from atoll.server.remote.answering import answering
from atoll.server.remote.asked import Asked
from atoll.server.remote.builds import build_routes
from atoll.server.remote.dial import dial_route
from atoll.server.remote.leaving import disconnected
from atoll.server.remote.streaming import StreamedAnswer
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens
from atoll.types import TeamInfo
from atoll.types.internal import as_json
from atoll.version import __version__

PREFIX = "/atoll"
_METHODS = ["GET", "POST", "PUT", "DELETE"]
_KEPT_HEADERS = ("content-type", "content-length")
_LINE_BYTES = 1 << 20


def remote_routes(
    settings: Settings, tokens: Tokens, access: Access, builds: Builds, uploads: Uploads
) -> Sequence[BaseRoute]:
    """Return the routes for clients that are this very SDK on other machines."""
    domain = settings.public_domain or f"localhost:{settings.port}"
    opened = [ipaddress.ip_network(text) for text in settings.private_ranges]

    async def hello(request: Request) -> Response:
        team = await access.team_of(request.headers)
        told = RemoteHello(
            version=__version__,
            protocol=PROTOCOL_VERSION,
            team=team.name,
            domain=domain,
        )
        return Response(as_json(told), media_type="application/json")

    async def links(request: Request) -> Response:
        team = await access.team_of(request.headers)
        asked = Asked(team, dict(request.path_params), {}, await read_body(request))
        wanted = asked.read(LinkRequest)
        check_link(wanted.port, wanted.expires_in_s)
        info = await asked.sandbox(asked.params["ref"])
        value = None
        if wanted.expires_in_s is not None:
            expires_at = math.ceil(time.time() + wanted.expires_in_s)
            value = tokens.link(info.sandbox_id, wanted.port, expires_at)
        address = port_url(settings.scheme, domain, info.sandbox_id, wanted.port, value)
        return Response(as_json(address), media_type="application/json")

    return [
        Route(f"{PREFIX}/hello", answering(hello)),
        dial_route(f"{PREFIX}/v1/dial", access),
        Route(f"{PREFIX}/v1/sandboxes/{{ref}}/links", answering(links), methods=["POST"]),
        *build_routes(f"{PREFIX}/v1", settings, access, builds, uploads),
        *(
            Route(
                # a template's name may have its team before it
                f"{PREFIX}{operation.path.replace('/templates/{ref}', '/templates/{ref:path}')}",
                answering(_Passage(operation, access, opened)),
                methods=[operation.method],
            )
            for operation in OPERATIONS
            if operation.passed
        ),
        Route(f"{PREFIX}/{{rest:path}}", answering(_nothing), methods=_METHODS),
    ]


async def _nothing(request: Request) -> Response:
    del request
    raise NotFoundError("the server offers no such operation", hint="`atoll docs remote` says which it has")


class _Passage:
    """Passes one operation to the supervisor."""

    def __init__(self, operation: Operation, access: Access, opened: Sequence[Range]) -> None:
        self._operation = operation
        self._access = access
        self._opened = opened

    async def __call__(self, request: Request) -> Response:
        """Check a request, pass it on, and return the unread answer.

        Raises:
            Refusal: The key is wrong, or the body too long.
            AtollError: The team may not do that, or the named thing is missing.
        """
        team = await self._access.team_of(request.headers)
        asked = await self._asked(request, team)
        for rule in self._operation.rules:
            await rule(asked)
        return await _passed(
            request, self._operation.method, self._target(asked), _headers(request, asked), asked.body
        )

    async def _asked(self, request: Request, team: TeamInfo) -> Asked:
        query = {
            name: values for name in self._operation.query if (values := request.query_params.getlist(name))
        }
        params = {name: str(value) for name, value in request.path_params.items()}
        body = None if self._operation.streamed else await read_body(request)
        return Asked(team, params, query, body, self._opened)

    def _target(self, asked: Asked) -> str:
        params = {name: quote(value, safe="") for name, value in asked.params.items()}
        query = f"?{urlencode(asked.query, doseq=True)}" if asked.query else ""
        return f"{self._operation.path.format(**params)}{query}"


def _headers(request: Request, asked: Asked) -> tuple[tuple[str, str], ...]:
    headers = [("content-type", request.headers.get("content-type", "application/json"))]
    if "accept" in request.headers:
        headers.append(("accept", request.headers["accept"]))
    if REQUEST_HEADER in request.headers:
        headers.append((REQUEST_HEADER, asked.token(request.headers[REQUEST_HEADER])))
    headers += [(name, request.headers[name]) for name in TRACE_HEADERS if name in request.headers]
    headers.append(caller_header(caller_name(note())))
    return tuple(headers)


async def _passed(
    request: Request, method: str, target: str, headers: tuple[tuple[str, str], ...], body: bytes | None
) -> Response:
    """Ask the supervisor. A client that leaves ends its request, as if it closed a local socket."""
    told = request.headers.get("content-length", "")
    length = int(told) if told.isascii() and told.isdigit() else None
    asking = asyncio.ensure_future(
        for_servers.relayed(method, target, headers, request.stream() if body is None else body, length)
    )
    leaving = asyncio.ensure_future(disconnected(request.receive)) if body is not None else None
    try:
        await asyncio.wait({asking, leaving} if leaving else {asking}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise HTTPException(499, "the client left")
        answer = asking.result()
    finally:
        if leaving is not None:
            leaving.cancel()
        if not asking.done():
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asking
    return _Relayed(answer)


class _Relayed(StreamedAnswer):
    """The supervisor's answer, passed on as it arrives."""

    def __init__(self, answer: Any) -> None:
        kept = [
            (name.encode("latin-1"), answer.headers[name].encode("latin-1"))
            for name in _KEPT_HEADERS
            if name in answer.headers and not (name == "content-length" and answer.status >= 400)
        ]
        super().__init__(answer.status, kept)
        self._answer = answer

    def end(self) -> None:
        self._answer.close()

    async def pieces(self) -> AsyncIterator[bytes]:
        kind = self._answer.headers.get("content-type", "")
        hides = self.status_code >= 400 or "ndjson" in kind
        if not hides:
            while data := await self._answer.read():
                yield data
            return
        home, rest = str(Home.default().path).encode(), b""
        while data := await self._answer.read():
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                yield b"".join(line.replace(home, b"HOME") + b"\n" for line in lines)
            if len(rest) > _LINE_BYTES:
                yield rest
                rest = b""
        if rest:
            yield rest.replace(home, b"HOME")
