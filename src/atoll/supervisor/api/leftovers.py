"""Routes for the leftovers of crashes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.supervisor.api.reply import Report, answer, json_answer
from atoll.supervisor.recovery.leftovers import LeftoverCollector
from atoll.supervisor.state.tasks import Tasks


def leftover_routes(*, leftovers: LeftoverCollector, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/leftovers``."""

    async def find(_: Request) -> Response:
        return json_answer(await leftovers.find())

    async def collect(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await leftovers.collect(images=True)

        return await answer(request, tasks, work)

    return [
        Route("/v1/leftovers", find),
        Route("/v1/leftovers", collect, methods=["DELETE"]),
    ]
