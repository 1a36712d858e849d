"""Routes of teams and of their keys."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import KeyCheck, KeyRequest, TeamRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.system import System
from atoll.types import Quotas


def team_routes(system: System) -> list[Route]:
    """Everything under ``/v1/teams``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, TeamRequest)

        async def work(_: Report) -> object:
            return await system.teams.create(wanted.name, wanted.quotas)

        return await answer(request, system.tasks, work)

    async def listed(_: Request) -> Response:
        return json_answer(system.teams.list())

    async def info(request: Request) -> Response:
        return json_answer(system.teams.get(request.path_params["name"]))

    async def use(request: Request) -> Response:
        return json_answer(await system.quotas.use(request.path_params["name"]))

    async def set_quotas(request: Request) -> Response:
        quotas = await read_body(request, Quotas)

        async def work(_: Report) -> object:
            return await system.teams.set_quotas(request.path_params["name"], quotas)

        return await answer(request, system.tasks, work)

    async def remove(request: Request) -> Response:
        async def work(_: Report) -> None:
            await system.team_deletion.delete(request.path_params["name"])

        return await answer(request, system.tasks, work)

    return [
        Route("/v1/teams", create, methods=["POST"]),
        Route("/v1/teams", listed),
        Route("/v1/teams/{name}", info),
        Route("/v1/teams/{name}/use", use),
        Route("/v1/teams/{name}/quotas", set_quotas, methods=["PUT"]),
        Route("/v1/teams/{name}", remove, methods=["DELETE"]),
    ]


def key_routes(system: System) -> list[Route]:
    """Everything under ``/v1/keys``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, KeyRequest)

        async def work(_: Report) -> object:
            return await system.keys.create(wanted.team, wanted.name, wanted.expires_in_s)

        return await answer(request, system.tasks, work)

    async def listed(request: Request) -> Response:
        return json_answer(system.keys.list(request.query_params.get("team")))

    async def check(request: Request) -> Response:
        wanted = await read_body(request, KeyCheck)
        return json_answer(await system.keys.check(wanted.key))

    async def revoke(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await system.keys.revoke(request.path_params["key_id"])

        return await answer(request, system.tasks, work)

    return [
        Route("/v1/keys", create, methods=["POST"]),
        Route("/v1/keys", listed),
        Route("/v1/keys/check", check, methods=["POST"]),
        Route("/v1/keys/{key_id}", revoke, methods=["DELETE"]),
    ]
