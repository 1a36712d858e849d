"""The application: all routes, and the handling around each request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.errors import AtollError, NotFoundError
from atoll.supervisor.api.acts import RequestActs
from atoll.supervisor.api.openapi import documentation_routes
from atoll.supervisor.api.reply import error_answer
from atoll.supervisor.own_exit import Keeper

# a client tests a policy, compares files and tells what it did by POST, which changes nothing
_SANDBOX = re.compile("/v1/sandboxes/([^/]+)(?!/egress/test$|/diff$|/told$)(?:/|$)")


def make_app(
    routes: Iterable[Route], keeper: Keeper, used: Callable[[str], None], acts: RequestActs
) -> ASGIApp:
    """The API with these routes.

    Args:
        keeper: Is told of each request: the supervisor is in use.
        used: Is told of the sandbox of each request that is more than a question about one.
        acts: Notes requests in the audit log.
    """
    app = Starlette(
        routes=[*routes, *documentation_routes()],
        exception_handlers={AtollError: _answer_error, HTTPException: _answer_http, Exception: _answer_error},
    )

    app.state.acts = acts

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        keeper.note()
        if scope["type"] == "http" and scope["method"] != "GET" and (found := _SANDBOX.match(scope["path"])):
            used(found[1])
        await app(scope, receive, send)

    return noting


async def _answer_error(request: Request, error: Exception) -> Response:
    request.app.state.acts.refused(request, error)
    return error_answer(error)


async def _answer_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = error_answer(NotFoundError(f"there is no {request.method} {request.url.path}", hint="see /docs"))
    answer.status_code = status
    return answer
