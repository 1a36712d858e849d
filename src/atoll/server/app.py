"""A single server for the API, by its host name, and for the gateway, by the names of sandboxes."""

from __future__ import annotations

import asyncio
import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.errors import AtollError
from atoll.protocol import ours
from atoll.server.api import routes
from atoll.server.auth.access import Access
from atoll.server.auth.access_log import AccessLog, logged
from atoll.server.auth.lasting_requests import KeyEndedError, ending_with_key
from atoll.server.e2b.answers import Refusal, refusal_of, refused
from atoll.server.gateway import CutError, Gateway
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens
from atoll.server.unread_bodies import closing_after_unread_body

_log = logging.getLogger(__name__)


def make_app(settings: Settings, tokens: Tokens, access: Access, log: AccessLog | None = None) -> ASGIApp:
    """Return the application that a server serves.

    Args:
        settings: The server's settings.
        tokens: Makes and checks clients' tokens for one sandbox or one volume.
        access: Tells which team a request belongs to.
        log: Logs each request; None logs nothing.
    """
    gateway = Gateway(tokens, domain=settings.domain, body_timeout_s=settings.body_timeout_s)
    api = ending_with_key(make_api(settings, tokens, access), access)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not await gateway.take(scope, receive, send):
                await api(scope, _bounded(receive, settings.body_timeout_s), send)
        except (CutError, KeyEndedError):
            raise  # the HTTP server breaks off the client's stream
        except Exception:
            _log.exception("%s failed", scope.get("method", scope["type"]))
            raise

    told = closing_after_unread_body(app)
    return logged(told, log) if log else told


def make_api(settings: Settings, tokens: Tokens, access: Access) -> Starlette:
    """Return the REST API."""
    return Starlette(
        routes=routes(settings, tokens, access),
        exception_handlers={
            Refusal: _refused,
            AtollError: _failed,
            HTTPException: _no_route,
            TimeoutError: _late,
            OSError: _of_host,
            Exception: _fault,
        },
    )


def _bounded(receive: Receive, patience_s: float) -> Receive:
    """Bound the silence of a request's body, but not of anything after it."""
    over = False

    async def bounded() -> Message:
        nonlocal over
        async with asyncio.timeout(None if over else patience_s):
            message = await receive()
        over = over or not message.get("more_body", False)
        return message

    return bounded


async def _late(request: Request, error: Exception) -> Response:
    return refused(Refusal(408, "the body of the request did not arrive", headers={"Connection": "close"}))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, AtollError)
    refusal = refusal_of(error)
    if refusal.status >= 500:
        _log.error("%s %r: %s: %s", request.method, request.url.path, error.code, error)
    return refused(refusal)


async def _of_host(request: Request, error: Exception) -> Response:
    known = ours(error)
    if isinstance(known, AtollError):
        return await _failed(request, known)
    raise error


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused(Refusal(error.status_code, error.detail, headers=error.headers))


async def _fault(request: Request, error: Exception) -> Response:
    _log.error("%s %r failed", request.method, request.url.path, exc_info=error)
    return refused(Refusal(500, "the server failed; its log says why"))
