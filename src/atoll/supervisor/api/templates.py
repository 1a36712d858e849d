"""Routes of templates and their builds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.errors import NotFoundError
from atoll.protocol import (
    CachedRequest,
    CachedStep,
    FinishRequest,
    PublishRequest,
    RecordRequest,
    TagsRequest,
    TemplateRequest,
)
from atoll.supervisor.api.reply import NDJSON, Report, answer, json_answer, read_body
from atoll.supervisor.state.registry import Sandbox
from atoll.supervisor.system import System
from atoll.types import BuildInfo

_ONE = "/v1/templates/{ref:path}"
_BUILD = "/v1/builds/{build_id}"


def template_routes(system: System) -> list[Route]:
    """The routes of templates and their builds."""
    return [*_build_routes(system), *_record_routes(system), *_template_routes(system)]


def _team(request: Request) -> str | None:
    return request.query_params.get("team") or None


def _template_routes(system: System) -> list[Route]:
    async def listed(request: Request) -> Response:
        return json_answer([row.info() for row in system.templates.rows.all(_team(request))])

    async def create(request: Request) -> Response:
        wanted = await read_body(request, TemplateRequest)
        with system.quotas.owning(wanted.team):
            return json_answer(await system.templates.create(wanted))

    async def resolve(request: Request) -> Response:
        ref = request.query_params.get("ref", "")
        return json_answer(system.templates.rows.resolve(ref, _team(request)))

    async def forget(request: Request) -> Response:
        async def work(_: Report) -> None:
            await system.templates.steps.forget()
            await system.templates.sweep()

        return await answer(request, system.tasks, work)

    async def info(request: Request) -> Response:
        return json_answer(system.templates.rows.find(request.path_params["ref"], _team(request)).info())

    async def remove(request: Request) -> Response:
        async def work(_: Report) -> None:
            await system.templates.delete(request.path_params["ref"], _team(request))

        return await answer(request, system.tasks, work)

    async def tag(request: Request) -> Response:
        wanted = await read_body(request, TagsRequest)
        return json_answer(await system.templates.tag(request.path_params["ref"], wanted.tags, wanted.team))

    async def untag(request: Request) -> Response:
        wanted = await read_body(request, TagsRequest)
        await system.templates.untag(request.path_params["ref"], wanted.tags, wanted.team)
        return Response(status_code=204)

    async def publish(request: Request) -> Response:
        wanted = await read_body(request, PublishRequest)
        row = await system.templates.publish(request.path_params["ref"], wanted.public, wanted.team)
        return json_answer(row.info())

    return [
        Route("/v1/templates", listed),
        Route("/v1/templates", create, methods=["POST"]),
        Route("/v1/resolved", resolve),
        Route("/v1/steps", forget, methods=["DELETE"]),
        Route(f"{_ONE}/tag", tag, methods=["POST"]),
        Route(f"{_ONE}/untag", untag, methods=["POST"]),
        Route(f"{_ONE}/publish", publish, methods=["POST"]),
        Route(_ONE, info),
        Route(_ONE, remove, methods=["DELETE"]),
    ]


def _record_routes(system: System) -> list[Route]:
    async def record(request: Request, what: str | Sandbox) -> Response:
        wanted = await read_body(request, RecordRequest)

        async def work(_: Report) -> object:
            with system.quotas.owning(wanted.team):
                return await system.templates.record(what, wanted.name, wanted.team, wanted.tags)

        return await answer(request, system.tasks, work)

    async def snapshot(request: Request) -> Response:
        return await record(request, request.path_params["ref"])

    async def sandbox(request: Request) -> Response:
        return await record(request, system.registry.sandbox(request.path_params["ref"]))

    return [
        Route("/v1/snapshots/{ref}/template", snapshot, methods=["POST"]),
        Route("/v1/sandboxes/{ref}/template", sandbox, methods=["POST"]),
    ]


def _build_routes(system: System) -> list[Route]:
    async def info(request: Request) -> Response:
        return json_answer(system.templates.rows.build(request.path_params["build_id"])[1])

    async def begin(request: Request) -> Response:
        build = await system.templates.begin(request.path_params["build_id"])
        return StreamingResponse(_held(system, build), media_type=NDJSON)

    async def cached(request: Request) -> Response:
        wanted = await read_body(request, CachedRequest)
        step = await system.templates.cached(request.path_params["build_id"], wanted.keys)
        found = CachedStep(step_key=step.step_key, snapshot_id=step.snapshot_id) if step else CachedStep()
        return json_answer(found)

    async def add_step(request: Request) -> Response:
        wanted = await read_body(request, CachedStep)
        system.templates.rows.build(request.path_params["build_id"])
        await system.templates.steps.add(wanted.step_key, wanted.snapshot_id)
        return Response(status_code=204)

    async def finish(request: Request) -> Response:
        wanted = await read_body(request, FinishRequest)

        async def work(_: Report) -> object:
            return await system.templates.finish(request.path_params["build_id"], wanted)

        return await answer(request, system.tasks, work)

    return [
        Route(_BUILD, info),
        Route(f"{_BUILD}/begin", begin, methods=["POST"]),
        Route(f"{_BUILD}/cached", cached, methods=["POST"]),
        Route(f"{_BUILD}/steps", add_step, methods=["POST"]),
        Route(f"{_BUILD}/finish", finish, methods=["POST"]),
    ]


async def _held(system: System, build: BuildInfo) -> AsyncIterator[bytes]:
    """Announce the build and watch it: the builder keeps this answer open for as long as it works."""
    try:
        yield msgspec.json.encode(build) + b"\n"
        await system.templates.over(build.build_id)
    finally:
        system.tasks.spawn(_given_up(system, build.build_id))


async def _given_up(system: System, build_id: str) -> None:
    wanted = FinishRequest(state="failed", reason="whoever built it went away in the middle of it")
    try:
        await system.templates.finish(build_id, wanted)
    except NotFoundError:  # its template was deleted meanwhile
        await system.templates.sweep()
