"""Routes of snapshots."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import SnapshotRequest, VerifyRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.integrity.state_digests import StateDigests
from atoll.supervisor.integrity.verify import Verification
from atoll.supervisor.lifecycle.snapshot import Snapshots
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks

_BASE = "/v1/snapshots"


def snapshot_routes(
    *,
    inventory: Inventory,
    snapshots: Snapshots,
    verification: Verification,
    digests: StateDigests,
    tasks: Tasks,
) -> list[Route]:
    """The routes under ``/v1/snapshots``, and the route that takes a snapshot of a sandbox."""

    async def take(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        wanted = await read_body(request, SnapshotRequest)

        async def work(_: Report) -> object:
            return await snapshots.make(sandbox, wanted.name, wanted.comment, wanted.build_id)

        return await answer(request, tasks, work)

    async def listed(request: Request) -> Response:
        query = request.query_params
        return json_answer(snapshots.list(query.get("sandbox"), query.get("team")))

    async def info(request: Request) -> Response:
        return json_answer(inventory.snapshot(request.path_params["ref"]).info())

    async def delete(request: Request) -> Response:
        async def work(_: Report) -> None:
            await snapshots.remove(request.path_params["ref"])

        return await answer(request, tasks, work)

    async def verify(request: Request) -> Response:
        wanted = await read_body(request, VerifyRequest)

        async def work(report: Report) -> object:
            return await verification.verify(wanted.names, report)

        return await answer(request, tasks, work, ends_with_client=True)

    async def digest(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await digests.digest(request.path_params["ref"])

        return await answer(request, tasks, work, ends_with_client=True)

    return [
        Route("/v1/sandboxes/{ref}/snapshots", take, methods=["POST"]),
        Route(_BASE, listed),
        Route(f"{_BASE}/verify", verify, methods=["POST"]),
        Route(f"{_BASE}/{{ref}}/digest", digest),
        Route(f"{_BASE}/{{ref}}", info),
        Route(f"{_BASE}/{{ref}}", delete, methods=["DELETE"]),
    ]
