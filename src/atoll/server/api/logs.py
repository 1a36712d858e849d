"""Logs of sandboxes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.sdk import AsyncSandbox
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b import logs
from atoll.server.e2b.answers import answer
from atoll.server.e2b.views import moment
from atoll.server.e2b.wire import LogEntry, LogLine, Logs, LogsPage


def log_routes(teams: TeamRoutes) -> Sequence[Route]:
    """Return the routes for logs."""

    async def v1(request: TeamRequest) -> Response:
        query = logs.query_of(
            {"limit": request.query.get("limit", ""), "start": request.query.get("start", "")}, "start"
        )
        entries = await entries_of(request, query)
        lines = [LogLine(timestamp=entry.timestamp, line=entry.message) for entry in entries]
        return answer(Logs(logs=lines, log_entries=entries))

    async def v2(request: TeamRequest) -> Response:
        return answer(LogsPage(logs=await entries_of(request, logs.query_of(request.query, "cursor"))))

    async def entries_of(request: TeamRequest, query: logs.Query) -> list[LogEntry]:
        info = await request.found()
        with contextlib.closing(AsyncSandbox.of(info)) as sandbox:
            texts: AsyncIterator[str] = sandbox.logs()
            return await logs.entries_of(texts, query, moment(info.created_at))

    return [
        teams.route("GET", "/sandboxes/{sandbox_id}/logs", v1),
        teams.route("GET", "/v2/sandboxes/{sandbox_id}/logs", v2),
    ]
