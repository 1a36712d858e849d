"""The application: all routes, and what happens around each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.errors import AtollError, NotFoundError
from atoll.supervisor.api.makings import request_routes
from atoll.supervisor.api.openapi import documentation_routes
from atoll.supervisor.api.others import image_routes, leftover_routes, snapshot_routes
from atoll.supervisor.api.reply import error_answer
from atoll.supervisor.api.sandboxes import sandbox_routes
from atoll.supervisor.api.stable import stable_routes
from atoll.supervisor.api.teams import key_routes, team_routes
from atoll.supervisor.api.templates import template_routes
from atoll.supervisor.api.volumes import volume_routes
from atoll.supervisor.stopping import Stopping
from atoll.supervisor.system import System

Handler = Callable[[Request, Exception], Awaitable[Response]]


def make_app(system: System, stopping: Stopping) -> ASGIApp:
    """The API of a system."""
    routes = [
        *stable_routes(system, stopping),
        *sandbox_routes(system),
        *request_routes(system),
        *template_routes(system),
        *snapshot_routes(system),
        *image_routes(system),
        *leftover_routes(system),
        *team_routes(system),
        *key_routes(system),
        *volume_routes(system),
        *documentation_routes(),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={AtollError: _answer_error, HTTPException: _answer_http, Exception: _answer_error},
    )

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        system.keeper.note()
        await app(scope, receive, send)

    return noting


async def _answer_error(_: Request, error: Exception) -> Response:
    return error_answer(error)


async def _answer_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = error_answer(NotFoundError(f"there is no {request.method} {request.url.path}", hint="see /docs"))
    answer.status_code = status
    return answer
