"""Forks and snapshots of a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import HostMemoryError, NoSpaceError, QuotaError, StateError
from atoll.sdk import AsyncSandbox
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b import leases
from atoll.server.e2b.answers import Refusal, answer, refusal_of
from atoll.server.e2b.attributes import read
from atoll.server.e2b.views import Views
from atoll.server.e2b.wire import Fault, Fork, ForkResult
from atoll.types import Lifecycle, SandboxInfo, TeamInfo

_FORKS_MOST = 100


def fork_routes(teams: TeamRoutes, views: Views) -> Sequence[Route]:
    """Return the route that copies a sandbox."""

    async def fork(request: TeamRequest) -> Response:
        wanted = await request.body(Fork)
        timeout_s = leases.DEFAULT_V1_S if wanted.timeout is None else wanted.timeout
        leases.bounded(timeout_s, request.team.quotas.ttl_s)
        _check_count(wanted.count, request.team)
        info = await request.found()
        try:
            lifecycle = leases.lease(timeout_s, info.lifecycle, request.team.quotas.ttl_s)
            ids = await _forked(info, wanted.count, lifecycle)
        except StateError:
            state = (await request.sandbox()).state
            raise Refusal(
                409, f"Sandbox '{info.sandbox_id}' cannot be forked while in '{state}' state"
            ) from None
        except (QuotaError, NoSpaceError, HostMemoryError) as error:
            # the answer lists each fork by itself, but atoll makes all or none
            refusal = refusal_of(error)
            fault = Fault(code=refusal.status, message=refusal.message)
            return answer([ForkResult(error=fault)] * wanted.count, 201)
        attributes = read(info)
        return answer([ForkResult(sandbox=views.created(one, attributes)) for one in ids], 201)

    return [teams.route("POST", "/sandboxes/{sandbox_id}/fork", fork)]


def _check_count(count: int, team: TeamInfo) -> None:
    if count < 1:
        raise Refusal(400, "Count must be at least 1")
    if count > _FORKS_MOST:
        raise Refusal(400, f"Count cannot be greater than {_FORKS_MOST}")
    if team.quotas.running is not None and count >= team.quotas.running:
        raise Refusal(
            400,
            f"Count must be lower than the maximum number of concurrent sandboxes ({team.quotas.running})",
        )


async def _forked(info: SandboxInfo, count: int, lifecycle: Lifecycle) -> list[str]:
    with contextlib.closing(AsyncSandbox.of(info)) as sandbox:
        copies = await sandbox.fork(count, lifecycle=lifecycle)
    for copy in copies:
        copy.close()
    return [copy.id for copy in copies]
