"""Routes of alerts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.supervisor.api.query import whole_number
from atoll.supervisor.api.reply import NDJSON, json_answer
from atoll.supervisor.state.alert_book import KEPT_MOST, AlertBook
from atoll.supervisor.state.inventory import Inventory

_BEAT_S = 5.0


def alert_routes(*, inventory: Inventory, alerts: AlertBook) -> list[Route]:
    """Everything under ``/v1/alerts``."""

    async def newest(request: Request) -> Response:
        team, sandbox_id = _scope(request, inventory)
        after, most = _range(request)
        return json_answer(alerts.page(team, sandbox_id, after=after, newest=most))

    async def follow(request: Request) -> Response:
        team, sandbox_id = _scope(request, inventory)
        after, most = _range(request)
        return StreamingResponse(_pages(alerts, team, sandbox_id, after, most), media_type=NDJSON)

    return [Route("/v1/alerts", newest), Route("/v1/alerts/follow", follow)]


def _scope(request: Request, inventory: Inventory) -> tuple[str | None, str | None]:
    """The team and the sandbox that a client asks about; None is all."""
    ref = request.query_params.get("sandbox")
    sandbox_id = None if ref is None else inventory.sandbox(ref).sandbox_id
    return request.query_params.get("team"), sandbox_id


def _range(request: Request) -> tuple[int, int]:
    query = request.query_params
    return (
        whole_number(query.get("after", "0"), "after"),
        whole_number(query.get("newest", str(KEPT_MOST)), "newest"),
    )


async def _pages(
    alerts: AlertBook, team: str | None, sandbox_id: str | None, after: int, newest: int
) -> AsyncIterator[bytes]:
    """Send a page at once and one whenever there are new alerts, and empty lines meanwhile, until the client leaves."""
    page = alerts.page(team, sandbox_id, after=after, newest=newest)
    yield msgspec.json.encode(page) + b"\n"
    while not alerts.closed:
        version = alerts.version
        page = alerts.page(team, sandbox_id, after=page.next)
        yield msgspec.json.encode(page) + b"\n" if page.alerts else b"\n"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEAT_S):
                await alerts.changed(version)
