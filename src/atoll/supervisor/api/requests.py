"""Answers requests that make sandboxes: if the answer is not received, the sandboxes are killed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import REQUEST_HEADER
from atoll.supervisor.api.reply import Report, answer
from atoll.supervisor.lifecycle.callers import Caller, Callers
from atoll.supervisor.state.tasks import Tasks
from atoll.types import SandboxInfo

# The key in a request's state for the function to call if the connection ends before the answer was read.
UNREAD = "unread"


class Makings:
    """Answers requests that make sandboxes.

    Args:
        callers: Knows who waits, and kills what nobody gets.
        tasks: Owner of the work, which goes on if the client leaves.
    """

    def __init__(self, callers: Callers, tasks: Tasks) -> None:
        self._callers = callers
        self._tasks = tasks

    async def answer(
        self,
        request: Request,
        work: Callable[[Report, Caller], Coroutine[Any, Any, Sequence[SandboxInfo]]],
        told: Callable[[Sequence[SandboxInfo]], object],
    ) -> Response:
        """Make sandboxes and answer with ``told`` of them.

        They are killed if the client does not get the answer.
        """
        caller = Caller(request.headers.get(REQUEST_HEADER))
        request.scope.setdefault("state", {})[UNREAD] = partial(self._callers.leave, caller)

        async def make(report: Report) -> object:
            return told(await self._callers.make(caller, partial(work, report, caller)))

        return await answer(request, self._tasks, make)


def request_routes(*, callers: Callers, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/requests``."""

    async def undo(request: Request) -> Response:
        async def work(_: Report) -> None:
            await callers.undo(request.path_params["token"])

        return await answer(request, tasks, work)

    return [Route("/v1/requests/{token}", undo, methods=["DELETE"])]
