"""Routes of volumes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import VolumeRequest
from atoll.supervisor.api.answers import Report, answer, json_answer, read_body
from atoll.supervisor.rows import VolumeRow
from atoll.supervisor.system import System

_BASE = "/v1/volumes"


def volume_routes(system: System) -> list[Route]:
    """Everything under ``/v1/volumes``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, VolumeRequest)

        async def work(_: Report) -> object:
            with system.parts.quotas.owning(wanted.team):
                return (await system.volumes.create(wanted.name, wanted.team)).info()

        return await answer(request, system.works, work)

    async def listed(request: Request) -> Response:
        return json_answer([row.info() for row in system.volumes.list(request.query_params.get("team"))])

    async def info(request: Request) -> Response:
        return json_answer(_volume(system, request).info())

    async def remove(request: Request) -> Response:
        row = _volume(system, request)

        async def work(_: Report) -> None:
            await system.volumes.delete(row.volume_id)

        return await answer(request, system.works, work)

    one = f"{_BASE}/{{ref}}"
    return [
        Route(_BASE, create, methods=["POST"]),
        Route(_BASE, listed),
        Route(one, info),
        Route(one, remove, methods=["DELETE"]),
    ]


def _volume(system: System, request: Request) -> VolumeRow:
    return system.volumes.get(request.path_params["ref"], request.query_params.get("team"))
