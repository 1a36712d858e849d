"""Answers to requests that make sandboxes: one that is not received makes none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import REQUEST_HEADER
from atoll.supervisor.api.reply import Report, answer
from atoll.supervisor.lifecycle.callers import Caller
from atoll.supervisor.system import System
from atoll.types import SandboxInfo

# Under this name a request's state has what is to be called when its connection ends before its answer was read.
UNREAD = "unread"


async def answer_made(
    request: Request,
    system: System,
    work: Callable[[Report, Caller], Coroutine[Any, Any, Sequence[SandboxInfo]]],
    told: Callable[[Sequence[SandboxInfo]], object],
) -> Response:
    """Do work that makes sandboxes and answer with what is told of them; they are killed if nobody gets the answer."""
    caller = Caller(request.headers.get(REQUEST_HEADER))
    request.scope.setdefault("state", {})[UNREAD] = partial(system.callers.leave, caller)

    async def make(report: Report) -> object:
        return told(await system.callers.make(caller, partial(work, report, caller)))

    return await answer(request, system.tasks, make)


def request_routes(system: System) -> list[Route]:
    """Everything under ``/v1/requests``."""

    async def undo(request: Request) -> Response:
        async def work(_: Report) -> None:
            await system.callers.undo(request.path_params["token"])

        return await answer(request, system.tasks, work)

    return [Route("/v1/requests/{token}", undo, methods=["DELETE"])]
