"""Routes of templates."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import (
    PublishRequest,
    RecordRequest,
    TagsRequest,
    TemplateRequest,
)
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.trash import Trash
from atoll.supervisor.templates.building import Templates, forget_steps
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import PrunedSteps

_ONE = "/v1/templates/{ref:path}"


def _team(request: Request) -> str | None:
    return request.query_params.get("team") or None


def template_routes(
    *, templates: Templates, inventory: Inventory, quotas: TeamQuotas, trash: Trash, tasks: Tasks
) -> list[Route]:
    """Everything under ``/v1/templates``."""

    async def listed(request: Request) -> Response:
        team = _team(request)
        return json_answer([row.shown_to(team) for row in templates.rows.all(team)])

    async def create(request: Request) -> Response:
        wanted = await read_body(request, TemplateRequest)
        with quotas.owning(wanted.team):
            return json_answer(await templates.create(wanted))

    async def resolve(request: Request) -> Response:
        ref = request.query_params.get("ref", "")
        return json_answer(templates.rows.resolve(ref, _team(request)))

    async def forget(request: Request) -> Response:
        async def work(_: Report) -> PrunedSteps:
            return await forget_steps(templates, inventory, trash)

        return await answer(request, tasks, work)

    async def info(request: Request) -> Response:
        team = _team(request)
        return json_answer(templates.rows.find(request.path_params["ref"], team).shown_to(team))

    async def delete(request: Request) -> Response:
        async def work(_: Report) -> None:
            await templates.delete(request.path_params["ref"], _team(request))

        return await answer(request, tasks, work)

    async def tag(request: Request) -> Response:
        wanted = await read_body(request, TagsRequest)
        return json_answer(await templates.tag(request.path_params["ref"], wanted.tags, wanted.team))

    async def untag(request: Request) -> Response:
        wanted = await read_body(request, TagsRequest)
        await templates.untag(request.path_params["ref"], wanted.tags, wanted.team)
        return Response(status_code=204)

    async def publish(request: Request) -> Response:
        wanted = await read_body(request, PublishRequest)
        row = await templates.publish(request.path_params["ref"], wanted.public, wanted.team)
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
        Route(_ONE, delete, methods=["DELETE"]),
    ]


def record_routes(
    *, templates: Templates, inventory: Inventory, quotas: TeamQuotas, tasks: Tasks
) -> list[Route]:
    """The routes that make templates of snapshots and sandboxes."""

    async def record(request: Request, what: str | Sandbox) -> Response:
        wanted = await read_body(request, RecordRequest)

        async def work(_: Report) -> object:
            with quotas.owning(wanted.team):
                return await templates.record(what, wanted.name, wanted.team, wanted.tags)

        return await answer(request, tasks, work)

    async def snapshot(request: Request) -> Response:
        return await record(request, request.path_params["ref"])

    async def sandbox(request: Request) -> Response:
        return await record(request, inventory.sandbox(request.path_params["ref"]))

    return [
        Route("/v1/snapshots/{ref}/template", snapshot, methods=["POST"]),
        Route("/v1/sandboxes/{ref}/template", sandbox, methods=["POST"]),
    ]
