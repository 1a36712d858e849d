"""Routes of snapshots, images and leftovers."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import VerifyRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.system import System
from atoll.types import ImageAccess


def snapshot_routes(system: System) -> list[Route]:
    """Everything under ``/v1/snapshots``."""

    async def listed(request: Request) -> Response:
        query = request.query_params
        return json_answer(system.snapshots.list(query.get("sandbox"), query.get("team")))

    async def info(request: Request) -> Response:
        return json_answer(system.registry.snapshot(request.path_params["ref"]).info())

    async def remove(request: Request) -> Response:
        async def work(_: Report) -> None:
            await system.snapshots.remove(request.path_params["ref"])

        return await answer(request, system.tasks, work)

    async def verify(request: Request) -> Response:
        wanted = await read_body(request, VerifyRequest)

        async def work(report: Report) -> object:
            return await system.verification.verify(wanted.names, report)

        return await answer(request, system.tasks, work, ends_with_client=True)

    return [
        Route("/v1/snapshots", listed),
        Route("/v1/snapshots/verify", verify, methods=["POST"]),
        Route("/v1/snapshots/{ref}", info),
        Route("/v1/snapshots/{ref}", remove, methods=["DELETE"]),
    ]


def image_routes(system: System) -> list[Route]:
    """Everything under ``/v1/images``."""

    async def listed(_: Request) -> Response:
        return json_answer(await asyncio.to_thread(system.images.list))

    async def info(request: Request) -> Response:
        return json_answer(await asyncio.to_thread(system.images.info, request.path_params["name"]))

    async def ensure(request: Request) -> Response:
        access = await read_body(request, ImageAccess)

        async def work(report: Report) -> object:
            newest = request.query_params.get("newest") == "true"
            name = request.path_params["name"]
            return await system.quotas.within_disk(
                access.team,
                lambda left_bytes: system.images.ensure(
                    name, report, newest=newest, access=access, most_bytes=left_bytes
                ),
            )

        return await answer(request, system.tasks, work)

    async def remove(request: Request) -> Response:
        async def work(_: Report) -> None:
            name = request.path_params["name"]
            await system.pool.forget(system.images.info(name).digest)
            await system.images.remove(name)

        return await answer(request, system.tasks, work)

    async def verify(request: Request) -> Response:
        wanted = await read_body(request, VerifyRequest)

        async def work(report: Report) -> object:
            return await system.verification.verify_images(wanted.names, report)

        return await answer(request, system.tasks, work, ends_with_client=True)

    return [
        Route("/v1/images", listed),
        Route("/v1/verified-images", verify, methods=["POST"]),
        Route("/v1/images/{name:path}", info),
        Route("/v1/images/{name:path}", ensure, methods=["POST"]),
        Route("/v1/images/{name:path}", remove, methods=["DELETE"]),
    ]


def leftover_routes(system: System) -> list[Route]:
    """Everything under ``/v1/leftovers``."""

    async def find(_: Request) -> Response:
        return json_answer(await system.leftovers.find())

    async def collect(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await system.leftovers.collect(images=True)

        return await answer(request, system.tasks, work)

    return [
        Route("/v1/leftovers", find),
        Route("/v1/leftovers", collect, methods=["DELETE"]),
    ]
