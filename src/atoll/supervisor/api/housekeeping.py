"""Routes for the upkeep of a home."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import DrainRequest, FsckRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.integrity.fsck import Fsck
from atoll.supervisor.lifecycle.drain import Drains
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.engine_uses import EngineUses
from atoll.supervisor.tenants.disk_report import DiskReports
from atoll.supervisor.tenants.teams import Teams
from atoll.types import HostMemory


def housekeeping_routes(
    *,
    reports: DiskReports,
    teams: Teams,
    drains: Drains,
    fsck: Fsck,
    engine_uses: EngineUses,
    memory: Callable[[], HostMemory],
    tasks: Tasks,
) -> list[Route]:
    """``/v1/disk``, ``/v1/memory``, ``/v1/drain``, ``/v1/fsck`` and ``/v1/upgrade``."""

    async def disk(request: Request) -> Response:
        team = request.query_params.get("team")
        if team is not None:
            teams.get(team)
        return json_answer(await reports.make(team))

    async def host_memory(_: Request) -> Response:
        return json_answer(memory())

    async def drain(request: Request) -> Response:
        wanted = (await read_body(request, DrainRequest)).check()

        async def work(report: Report) -> object:
            return await drains.drain(wanted.timeout_s, report)

        return await answer(request, tasks, work)

    async def drained(_: Request) -> Response:
        return json_answer(drains.info())

    async def undrain(request: Request) -> Response:
        async def work(report: Report) -> object:
            return await drains.end(report)

        return await answer(request, tasks, work)

    async def check(request: Request) -> Response:
        wanted = await read_body(request, FsckRequest)

        async def work(report: Report) -> object:
            return await fsck.run(report, repair=wanted.repair)

        return await answer(request, tasks, work, ends_with_client=not wanted.repair)

    async def upgrade(_: Request) -> Response:
        return json_answer(await engine_uses.report())

    return [
        Route("/v1/upgrade", upgrade),
        Route("/v1/fsck", check, methods=["POST"]),
        Route("/v1/disk", disk),
        Route("/v1/memory", host_memory),
        Route("/v1/drain", drain, methods=["POST"]),
        Route("/v1/drain", drained),
        Route("/v1/drain", undrain, methods=["DELETE"]),
    ]
