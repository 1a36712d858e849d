"""Routes of the builds of templates."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.errors import NotFoundError
from atoll.protocol import CachedRequest, CachedStep, FinishRequest
from atoll.supervisor.api.reply import NDJSON, Report, answer, json_answer, read_body
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.templates.building import Templates
from atoll.types import BuildInfo

_BUILD = "/v1/builds/{build_id}"


def build_routes(*, templates: Templates, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/builds``."""

    async def info(request: Request) -> Response:
        return json_answer(templates.rows.build(request.path_params["build_id"])[1])

    async def begin(request: Request) -> Response:
        build = await templates.begin(request.path_params["build_id"])
        return StreamingResponse(_held(templates, tasks, build), media_type=NDJSON)

    async def cached(request: Request) -> Response:
        wanted = await read_body(request, CachedRequest)
        step = await templates.cached(request.path_params["build_id"], wanted.keys)
        found = CachedStep(step_key=step.step_key, snapshot_id=step.snapshot_id) if step else CachedStep()
        return json_answer(found)

    async def add_step(request: Request) -> Response:
        wanted = await read_body(request, CachedStep)
        templates.rows.build(request.path_params["build_id"])
        await templates.steps.add(wanted.step_key, wanted.snapshot_id)
        return Response(status_code=204)

    async def finish(request: Request) -> Response:
        wanted = await read_body(request, FinishRequest)

        async def work(_: Report) -> object:
            return await templates.finish(request.path_params["build_id"], wanted)

        return await answer(request, tasks, work)

    return [
        Route(_BUILD, info),
        Route(f"{_BUILD}/begin", begin, methods=["POST"]),
        Route(f"{_BUILD}/cached", cached, methods=["POST"]),
        Route(f"{_BUILD}/steps", add_step, methods=["POST"]),
        Route(f"{_BUILD}/finish", finish, methods=["POST"]),
    ]


async def _held(templates: Templates, tasks: Tasks, build: BuildInfo) -> AsyncIterator[bytes]:
    """Announce the build and watch it: the builder keeps this answer open for as long as it works."""
    try:
        yield msgspec.json.encode(build) + b"\n"
        await templates.over(build.build_id)
    finally:
        tasks.spawn(_given_up(templates, build.build_id))


async def _given_up(templates: Templates, build_id: str) -> None:
    wanted = FinishRequest(state="failed", reason="the client that built it disconnected")
    try:
        await templates.finish(build_id, wanted)
    except NotFoundError:  # its template was deleted meanwhile
        await templates.sweep()
