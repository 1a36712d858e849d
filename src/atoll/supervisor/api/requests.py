"""Follows the clients of requests that make sandboxes: a client that leaves early gets none."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import CALLER_HEADER, REQUEST_HEADER, told_caller
from atoll.supervisor.api.reply import Report, answer
from atoll.supervisor.lifecycle.callers import Caller, Callers
from atoll.supervisor.state.tasks import Tasks

# The key in a request's state for the function to call if the connection ends before the answer was read.
UNREAD = "unread"


def caller_of(request: Request, callers: Callers) -> Caller:
    """The client of a request. It leaves if its connection ends before it has read the answer."""
    caller = Caller(request.headers.get(REQUEST_HEADER), told_caller(request.headers.get(CALLER_HEADER)))
    request.scope.setdefault("state", {})[UNREAD] = partial(callers.leave, caller)
    return caller


def request_routes(*, callers: Callers, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/requests``."""

    async def undo(request: Request) -> Response:
        async def work(_: Report) -> None:
            await callers.undo(request.path_params["token"])

        return await answer(request, tasks, work)

    return [Route("/v1/requests/{token}", undo, methods=["DELETE"])]
