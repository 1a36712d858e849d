"""Routes of what keeps a home in order."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.supervisor.api.reply import json_answer
from atoll.supervisor.tenants.disk_report import DiskReports
from atoll.supervisor.tenants.teams import Teams


def housekeeping_routes(*, reports: DiskReports, teams: Teams) -> list[Route]:
    """``/v1/disk``."""

    async def disk(request: Request) -> Response:
        team = request.query_params.get("team")
        if team is not None:
            teams.get(team)
        return json_answer(await reports.make(team))

    return [Route("/v1/disk", disk)]
