"""Routes of images."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import VerifyRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.integrity.verify import Verification
from atoll.supervisor.lifecycle.image_requests import ImageRequests
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.images import SupervisorImages
from atoll.types import ImageAccess

_ONE = "/v1/images/{name:path}"


def image_routes(
    *, images: SupervisorImages, requests: ImageRequests, verification: Verification, tasks: Tasks
) -> list[Route]:
    """Everything under ``/v1/images``."""

    async def listed(_: Request) -> Response:
        return json_answer(await asyncio.to_thread(images.list))

    async def info(request: Request) -> Response:
        return json_answer(await asyncio.to_thread(images.info, request.path_params["name"]))

    async def ensure(request: Request) -> Response:
        access = await read_body(request, ImageAccess)
        newest = request.query_params.get("newest") == "true"

        async def work(report: Report) -> object:
            return await requests.ensure(request.path_params["name"], report, newest=newest, access=access)

        return await answer(request, tasks, work)

    async def delete(request: Request) -> Response:
        async def work(_: Report) -> None:
            await requests.delete(request.path_params["name"])

        return await answer(request, tasks, work)

    async def verify(request: Request) -> Response:
        wanted = await read_body(request, VerifyRequest)

        async def work(report: Report) -> object:
            return await verification.verify_images(wanted.names, report)

        return await answer(request, tasks, work, ends_with_client=True)

    return [
        Route("/v1/images", listed),
        Route("/v1/verified-images", verify, methods=["POST"]),
        Route(_ONE, info),
        Route(_ONE, ensure, methods=["POST"]),
        Route(_ONE, delete, methods=["DELETE"]),
    ]
