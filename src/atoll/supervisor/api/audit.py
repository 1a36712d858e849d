"""Routes of the audit log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.audit import AuditLog, mark_of
from atoll.errors import InvalidSpecError
from atoll.protocol import ANCHORS_MOST, CALLER_HEADER, AuditCheck, ToldRequest, told_caller
from atoll.supervisor.api.query import unix_time, whole_number
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.client_lines import ClientLines
from atoll.types import AuditAnchor, AuditEntry, AuditReport, Progress

_PAGE, _PAGE_MOST = 1000, 10_000
_READS_AT_ONCE = 2


def audit_routes(*, audit: AuditLog, inventory: Inventory, lines: ClientLines, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/audit``, and ``/v1/sandboxes/REF/told``."""
    # A page may read 32 MiB: whoever asks for many keeps no other request waiting.
    reading = asyncio.Semaphore(_READS_AT_ONCE)

    async def entries(request: Request) -> Response:
        query = request.query_params
        limit = min(_PAGE_MOST, whole_number(query.get("limit", str(_PAGE)), "limit"))
        newest = whole_number(query["newest"], "newest") if "newest" in query else None
        after = whole_number(query.get("after", "0"), "after")
        sandbox, team, act, delegation = (
            query.get(name) for name in ("sandbox", "team", "act", "delegation")
        )
        since, until = (unix_time(query.get(name), name) for name in ("since", "until"))

        def wanted(entry: AuditEntry) -> bool:
            return (
                sandbox in (None, entry.sandbox_id)
                and team in (None, entry.team)
                and delegation in (None, entry.delegation)
                and (act is None or entry.act == act or entry.act.startswith(f"{act}."))
                and (since is None or entry.at >= since)
                and (until is None or entry.at < until)
            )

        named = {"sandbox_id": sandbox, "team": team, "delegation": delegation}
        marks = [mark_of(name, value) for name, value in named.items() if value is not None]
        async with reading:
            if newest is not None:
                count = min(_PAGE_MOST, newest)
                found = await asyncio.to_thread(audit.read_newest, count=count, wanted=wanted, marks=marks)
            else:
                found = await asyncio.to_thread(
                    audit.read, after=after, limit=limit, wanted=wanted, marks=marks
                )
        return json_answer(found)

    async def verify(request: Request) -> Response:
        wanted = await read_body(request, AuditCheck)
        if len(wanted.anchors) > ANCHORS_MOST:
            raise InvalidSpecError(f"these are {len(wanted.anchors)} anchors", hint=f"give {ANCHORS_MOST}")

        async def work(report: Report) -> object:
            return await _verified(audit, report, wanted.anchors)

        return await answer(request, tasks, work, ends_with_client=True)

    async def told(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        given = await read_body(request, ToldRequest)
        await lines.take(sandbox, given, told_caller(request.headers.get(CALLER_HEADER)))
        return Response(status_code=204)

    return [
        Route("/v1/audit", entries),
        Route("/v1/audit/verify", verify, methods=["POST"]),
        Route("/v1/sandboxes/{ref}/told", told, methods=["POST"]),
    ]


async def _verified(audit: AuditLog, report: Report, anchors: Sequence[AuditAnchor]) -> AuditReport:
    """Check the log in a thread, which ends soon after the caller has left."""
    loop, left = asyncio.get_running_loop(), threading.Event()
    total_bytes, done_bytes = await asyncio.to_thread(audit.size_bytes), 0

    def came(count: int) -> None:
        nonlocal done_bytes
        done_bytes += count
        report(Progress(step="checking the audit log", done=done_bytes, total=total_bytes, unit="bytes"))

    def read(count: int) -> None:
        if left.is_set():
            raise InterruptedError("the client has left")
        loop.call_soon_threadsafe(came, count)

    try:
        return await asyncio.to_thread(audit.verify, read, anchors)
    finally:
        left.set()
