"""Metrics of sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping, Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import SandboxNotFoundError
from atoll.sdk import AsyncSandbox
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b.answers import Refusal, answer
from atoll.server.e2b.listing import number_of
from atoll.server.e2b.sandbox_lookup import all_of
from atoll.server.e2b.views import Views
from atoll.server.e2b.wire import Metric, MetricsOfSandboxes
from atoll.types import SandboxInfo

_SANDBOXES_MOST = 100
# Two samples of the supervisor are closer together than this.
_NEWEST_S = 30.0
_IDS = re.compile(r"[a-z0-9,]{0,4096}")


def metric_routes(teams: TeamRoutes, views: Views) -> Sequence[Route]:
    """Return the routes for metrics."""

    async def one(request: TeamRequest) -> Response:
        start, end = _moment(request.query, "start"), _moment(request.query, "end")
        if start is not None and end is not None and start > end:
            raise Refusal(400, "start cannot be after end")
        with await request.handle() as sandbox:
            samples = await sandbox.stats_history(start, end)
        return answer([views.metric(sample) for sample in samples])

    async def many(request: TeamRequest) -> Response:
        wanted = _ids(request.query.get("sandbox_ids", ""))
        infos = [info for info in await all_of(request.team.name) if info.sandbox_id in wanted]
        found = await asyncio.gather(*(newest(info) for info in infos))
        metrics = {info.sandbox_id: metric for info, metric in zip(infos, found, strict=True) if metric}
        return answer(MetricsOfSandboxes(sandboxes=metrics))

    async def newest(info: SandboxInfo) -> Metric | None:
        with contextlib.closing(AsyncSandbox.of(info)) as sandbox:
            try:
                samples = await sandbox.stats_history(time.time() - _NEWEST_S)
            except SandboxNotFoundError:
                return None
        return views.metric(samples[-1]) if samples else None

    return [
        teams.route("GET", "/sandboxes/metrics", many),
        teams.route("GET", "/sandboxes/{sandbox_id}/metrics", one),
    ]


def _ids(text: str) -> set[str]:
    ids = set(filter(None, text.split(",")))
    if not _IDS.fullmatch(text) or not ids:
        raise Refusal(400, "sandbox_ids must be ids of sandboxes with commas between")
    if len(ids) > _SANDBOXES_MOST:
        raise Refusal(400, f"sandbox_ids must be at most {_SANDBOXES_MOST}")
    return ids


def _moment(query: Mapping[str, str], name: str) -> float | None:
    return float(number_of(query, name, 0)) if query.get(name) else None
