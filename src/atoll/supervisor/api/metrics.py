"""The route of the metrics of a home."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.supervisor.api.reply import json_answer
from atoll.supervisor.monitors.metrics import Metrics


def metric_routes(metrics: Metrics) -> list[Route]:
    """``/v1/metrics``."""

    async def all_of_them(_: Request) -> Response:
        return json_answer(metrics.families())

    return [Route("/v1/metrics", all_of_them)]
