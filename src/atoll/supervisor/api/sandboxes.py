"""Routes that make, list, describe and kill sandboxes."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.supervisor.api.query import metadata_of, whole_number
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.api.requests import caller_of
from atoll.supervisor.lifecycle.callers import Callers
from atoll.supervisor.lifecycle.create import Creation
from atoll.supervisor.lifecycle.idempotency import KeyedRequests
from atoll.supervisor.lifecycle.info import info_of, infos_of
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.logs import read_page
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.listing import page
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.templates.building import Templates
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import SandboxInfo, SandboxSpec

_BASE = "/v1/sandboxes"


def creation_routes(
    *,
    inventory: Inventory,
    creation: Creation,
    templates: Templates,
    quotas: TeamQuotas,
    callers: Callers,
    tasks: Tasks,
) -> list[Route]:
    """The route that makes a sandbox."""
    keyed = KeyedRequests(inventory)

    async def create(request: Request) -> Response:
        spec = await read_body(request, SandboxSpec)
        caller = caller_of(request, callers)

        async def work(report: Report) -> SandboxInfo:
            async with keyed.turn(spec) as earlier, callers.waiting(caller):
                if earlier is not None:  # an earlier request made it, so it outlives this caller
                    return info_of(earlier, quotas)
                sandbox = await creation.create(spec, report, caller)
                await templates.made(sandbox)
                caller.made = [sandbox.sandbox_id]
                return info_of(sandbox, quotas)

        return await answer(request, tasks, work)

    return [Route(_BASE, create, methods=["POST"])]


def sandbox_routes(
    *, inventory: Inventory, quotas: TeamQuotas, paths: Paths, kills: Kills, tasks: Tasks
) -> list[Route]:
    """The routes that list, describe and kill sandboxes, and read their logs."""

    async def listed(request: Request) -> Response:
        query = request.query_params
        states = [state for state in query.get("state", "").split(",") if state]
        return json_answer(
            page(
                inventory.sandboxes(),
                infos_of(quotas),
                states=states,
                metadata=metadata_of(query.getlist("metadata")),
                team=query.get("team"),
                limit=whole_number(query.get("limit", "100"), "limit"),
                cursor=query.get("cursor"),
            )
        )

    async def info(request: Request) -> Response:
        return json_answer(info_of(inventory.sandbox(request.path_params["ref"]), quotas))

    async def kill(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])

        async def work(_: Report) -> None:
            await kills.kill(sandbox)

        return await answer(request, tasks, work)

    async def logs(request: Request) -> Response:
        path = paths.console(inventory.sandbox(request.path_params["ref"]).sandbox_id)
        offset = whole_number(request.query_params.get("offset", "0"), "offset")
        return json_answer(await asyncio.to_thread(read_page, path, offset))

    one = f"{_BASE}/{{ref}}"
    return [
        Route(_BASE, listed),
        Route(one, info),
        Route(one, kill, methods=["DELETE"]),
        Route(f"{one}/logs", logs),
    ]
