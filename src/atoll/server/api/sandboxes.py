"""Sandboxes: create, list, get, kill."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b import leases
from atoll.server.e2b.answers import answer, no_content
from atoll.server.e2b.creation import Creation
from atoll.server.e2b.idempotency import Idempotency
from atoll.server.e2b.listing import Page, page_of, query_of
from atoll.server.e2b.sandbox_lookup import all_of
from atoll.server.e2b.views import Views
from atoll.server.e2b.wire import NewSandbox


def sandbox_routes(teams: TeamRoutes, views: Views, idempotency: Idempotency) -> Sequence[Route]:
    """Return the routes for making sandboxes, listing them, and one by its id."""
    creation = Creation(views, idempotency)

    async def create_v1(request: TeamRequest) -> Response:
        wanted = await request.body(NewSandbox)
        made = await creation.create(
            request.team, wanted, default_s=leases.DEFAULT_V1_S, secure=wanted.secure is not False
        )
        return answer(made, 201)

    async def create_v2(request: TeamRequest) -> Response:
        key = request.http.headers.get("idempotency-key")
        wanted = await request.body(NewSandbox)
        made = await creation.create(request.team, wanted, default_s=leases.DEFAULT_V2_S, key=key)
        return answer(made, 201)

    async def list_v1(request: TeamRequest) -> Response:
        wanted = query_of({"metadata": request.query.get("metadata", ""), "state": "running"})
        infos = await all_of(request.team.name)
        page = page_of(infos, wanted, limit=None)
        return answer([views.listed(info) for info in page.infos])

    async def list_v2(request: TeamRequest) -> Response:
        wanted = query_of(request.query)
        page = page_of(await all_of(request.team.name), wanted, limit=wanted.limit)
        return answer([views.listed(info) for info in page.infos], headers=_page_headers(page))

    async def look(request: TeamRequest) -> Response:
        return answer(views.detail(await request.sandbox()))

    async def kill(request: TeamRequest) -> Response:
        with await request.handle() as sandbox:
            await sandbox.kill()
        return no_content()

    return [
        teams.route("POST", "/sandboxes", create_v1),
        teams.route("POST", "/v2/sandboxes", create_v2),
        teams.route("GET", "/sandboxes", list_v1),
        teams.route("GET", "/v2/sandboxes", list_v2),
        teams.route("GET", "/sandboxes/{sandbox_id}", look),
        teams.route("DELETE", "/sandboxes/{sandbox_id}", kill),
    ]


def _page_headers(page: Page) -> dict[str, str]:
    headers = {"X-Total-Running": str(page.running)}
    return headers | {"X-Next-Token": page.token} if page.token else headers
