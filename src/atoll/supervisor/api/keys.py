"""Routes of the keys of teams."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import KeyCheck, KeyRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.keys import Keys


def key_routes(*, keys: Keys, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/keys``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, KeyRequest)

        async def work(_: Report) -> object:
            return await keys.create(wanted.team, wanted.name, wanted.expires_in_s)

        return await answer(request, tasks, work)

    async def listed(request: Request) -> Response:
        return json_answer(keys.list(request.query_params.get("team")))

    async def check(request: Request) -> Response:
        wanted = await read_body(request, KeyCheck)

        async def work(_: Report) -> object:
            return await keys.check(wanted.key)

        return await answer(request, tasks, work)

    async def revoke(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await keys.revoke(request.path_params["key_id"])

        return await answer(request, tasks, work)

    return [
        Route("/v1/keys", create, methods=["POST"]),
        Route("/v1/keys", listed),
        Route("/v1/keys/check", check, methods=["POST"]),
        Route("/v1/keys/{key_id}", revoke, methods=["DELETE"]),
    ]
