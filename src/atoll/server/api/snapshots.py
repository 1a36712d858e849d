"""Routes to take and list snapshots. Clients delete them like templates."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import StateError
from atoll.sdk import AsyncTemplates
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b.answers import Refusal, answer
from atoll.server.e2b.snapshots import name_of, page_of, query_of, told
from atoll.server.e2b.wire import NewSnapshot


def snapshot_routes(teams: TeamRoutes) -> Sequence[Route]:
    """Return the routes ``/sandboxes/ID/snapshots`` and ``/snapshots``."""

    async def take(request: TeamRequest) -> Response:
        wanted = await request.body(NewSnapshot)
        if wanted.memory is False:
            raise Refusal(409, "Snapshots of the filesystem alone are not supported by this server.")
        team = request.team.name
        name = name_of(wanted.name, team) if wanted.name else None
        try:
            with await request.handle() as sandbox:
                kept = await AsyncTemplates.record(str(name) if name else None, sandbox, team)
        except StateError:
            info = await request.sandbox()
            raise Refusal(
                409, f"Sandbox '{info.sandbox_id}' cannot be snapshotted while in '{info.state}' state"
            ) from None
        return answer(told(kept.template_id, kept.name, kept.tag, team), 201)

    async def listed(request: TeamRequest) -> Response:
        team = request.team.name
        page, token = page_of(await AsyncTemplates.list(team=team), query_of(request.query, team), team)
        return answer(page, headers={"X-Next-Token": token} if token else None)

    return [
        teams.route("POST", "/sandboxes/{sandbox_id}/snapshots", take),
        teams.route("GET", "/snapshots", listed),
    ]
