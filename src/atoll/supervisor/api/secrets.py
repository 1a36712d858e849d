"""Routes of secrets. No answer has a value."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import SecretRequest, SecretUpdate
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.supervisor.tenants.secrets import Secrets

_BASE = "/v1/secrets"
_ONE = f"{_BASE}/{{ref}}"


def secret_routes(*, secrets: Secrets, quotas: TeamQuotas, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/secrets``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, SecretRequest)

        async def work(_: Report) -> object:
            with quotas.owning(wanted.team):
                return await secrets.create(
                    wanted.name,
                    wanted.value,
                    team=wanted.team,
                    hosts=wanted.hosts,
                    metadata=wanted.metadata,
                    canary=wanted.canary,
                )

        return await answer(request, tasks, work)

    async def listed(request: Request) -> Response:
        return json_answer(secrets.list(_team(request)))

    async def info(request: Request) -> Response:
        return json_answer(secrets.get(request.path_params["ref"], _team(request)))

    async def update(request: Request) -> Response:
        wanted = await read_body(request, SecretUpdate)

        async def work(_: Report) -> object:
            return await secrets.update(
                request.path_params["ref"],
                _team(request),
                value=wanted.value,
                hosts=wanted.hosts,
                metadata=wanted.metadata,
            )

        return await answer(request, tasks, work)

    async def delete(request: Request) -> Response:
        async def work(_: Report) -> None:
            await secrets.delete(request.path_params["ref"], _team(request))

        return await answer(request, tasks, work)

    return [
        Route(_BASE, create, methods=["POST"]),
        Route(_BASE, listed),
        Route(_ONE, info),
        Route(_ONE, update, methods=["POST"]),
        Route(_ONE, delete, methods=["DELETE"]),
    ]


def _team(request: Request) -> str | None:
    return request.query_params.get("team")
