"""Routes of volumes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import VolumeQuotaRequest, VolumeRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.supervisor.tenants.volume_quotas import VolumeQuotas

_BASE = "/v1/volumes"
_ONE = f"{_BASE}/{{ref}}"


def volume_routes(
    *, volumes: Volumes, quotas: TeamQuotas, volume_quotas: VolumeQuotas, tasks: Tasks
) -> list[Route]:
    """Everything under ``/v1/volumes``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, VolumeRequest)

        async def work(_: Report) -> object:
            with quotas.owning(wanted.team):
                return (await volumes.create(wanted.name, wanted.team, wanted.quota_mib)).info()

        return await answer(request, tasks, work)

    async def listed(request: Request) -> Response:
        return json_answer([row.info() for row in volumes.list(request.query_params.get("team"))])

    async def info(request: Request) -> Response:
        return json_answer(volumes.get(request.path_params["ref"], request.query_params.get("team")).info())

    async def replace_quota(request: Request) -> Response:
        row = volumes.get(request.path_params["ref"], request.query_params.get("team"))
        wanted = await read_body(request, VolumeQuotaRequest)

        async def work(_: Report) -> object:
            changed = await volumes.set_quota(row.volume_id, wanted.quota_mib)
            volume_quotas.changed(row.volume_id)
            return changed.info()

        return await answer(request, tasks, work)

    async def delete(request: Request) -> Response:
        row = volumes.get(request.path_params["ref"], request.query_params.get("team"))

        async def work(_: Report) -> None:
            await volumes.delete(row.volume_id)

        return await answer(request, tasks, work)

    return [
        Route(_BASE, create, methods=["POST"]),
        Route(_BASE, listed),
        Route(_ONE, info),
        Route(f"{_ONE}/quota", replace_quota, methods=["PUT"]),
        Route(_ONE, delete, methods=["DELETE"]),
    ]
