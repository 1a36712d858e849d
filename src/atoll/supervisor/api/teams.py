"""Routes of teams."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import CeilingRequest, TeamRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.team_deletion import TeamDeletion
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.supervisor.tenants.teams import Teams
from atoll.types import Quotas


def team_routes(
    *, teams: Teams, quotas: TeamQuotas, egress: EgressControl, deletion: TeamDeletion, tasks: Tasks
) -> list[Route]:
    """Everything under ``/v1/teams``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, TeamRequest)

        async def work(_: Report) -> object:
            return await teams.create(wanted.name, wanted.quotas)

        return await answer(request, tasks, work)

    async def listed(_: Request) -> Response:
        return json_answer(teams.list())

    async def info(request: Request) -> Response:
        return json_answer(teams.get(request.path_params["name"]))

    async def use(request: Request) -> Response:
        return json_answer(await quotas.use(request.path_params["name"]))

    async def replace_quotas(request: Request) -> Response:
        wanted = await read_body(request, Quotas)

        async def work(_: Report) -> object:
            return await teams.set_quotas(request.path_params["name"], wanted)

        return await answer(request, tasks, work)

    async def replace_ceiling(request: Request) -> Response:
        wanted = await read_body(request, CeilingRequest)
        if wanted.ceiling is not None:
            await egress.check_ceiling(wanted.ceiling)

        async def work(_: Report) -> object:
            return await teams.set_ceiling(request.path_params["name"], wanted.ceiling)

        return await answer(request, tasks, work)

    async def delete(request: Request) -> Response:
        async def work(_: Report) -> None:
            await deletion.delete(request.path_params["name"])

        return await answer(request, tasks, work)

    return [
        Route("/v1/teams", create, methods=["POST"]),
        Route("/v1/teams", listed),
        Route("/v1/teams/{name}", info),
        Route("/v1/teams/{name}/use", use),
        Route("/v1/teams/{name}/quotas", replace_quotas, methods=["PUT"]),
        Route("/v1/teams/{name}/ceiling", replace_ceiling, methods=["PUT"]),
        Route("/v1/teams/{name}", delete, methods=["DELETE"]),
    ]
