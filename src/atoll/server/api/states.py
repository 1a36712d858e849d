"""The states of a sandbox: connect, pause, resume, timeouts, network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import StateError
from atoll.sdk import AsyncSandbox
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b import leases
from atoll.server.e2b.answers import Refusal, answer, no_content
from atoll.server.e2b.attributes import INTERNET, NETWORK, flag_of, read
from atoll.server.e2b.creation import WIDER
from atoll.server.e2b.egress import egress_of
from atoll.server.e2b.network_views import kept_network
from atoll.server.e2b.origins import may_get
from atoll.server.e2b.views import Views, state_of
from atoll.server.e2b.wire import Connect, Network, Pause, Refresh, Resume, Timeout
from atoll.types import SandboxInfo

_REFRESH_S = 15


def state_routes(teams: TeamRoutes, views: Views) -> Sequence[Route]:
    """Return the routes that change the state of one sandbox."""
    return [*_sleep_routes(teams, views), *_lease_routes(teams), _network_route(teams, views)]


def _sleep_routes(teams: TeamRoutes, views: Views) -> Sequence[Route]:
    pausing = Busy()

    async def connected(request: TeamRequest, timeout_s: int, memory: bool | None) -> Response:
        leases.bounded(timeout_s, request.team.quotas.ttl_s)
        info = await request.sandbox()
        paused = state_of(info) == "paused"
        with _handle(info) as sandbox:
            await sandbox.resume(timeout_s, memory=not paused or memory is not False)
        return answer(views.created(info.sandbox_id, read(info)), 201 if paused else 200)

    async def connect_v1(request: TeamRequest) -> Response:
        wanted = await request.body(Connect)
        if wanted.timeout is None:
            raise Refusal(400, "timeout is required")
        return await connected(request, wanted.timeout, wanted.memory)

    async def connect_v2(request: TeamRequest) -> Response:
        wanted = await request.body(Connect)
        timeout_s = leases.DEFAULT_V2_S if wanted.timeout is None else wanted.timeout
        return await connected(request, timeout_s, wanted.memory)

    async def resume(request: TeamRequest) -> Response:
        wanted = await request.body(Resume)
        if state_of(await request.sandbox()) == "running":
            raise Refusal(409, f"Sandbox '{request.ref}' is already running")
        timeout_s = leases.DEFAULT_V1_S if wanted.timeout is None else wanted.timeout
        return await connected(request, timeout_s, wanted.memory)

    async def pause(request: TeamRequest) -> Response:
        wanted = await request.body(Pause)
        info = await request.sandbox()
        if state_of(info) == "paused":
            raise Refusal(409, f"Error pausing sandbox - sandbox '{info.sandbox_id}' is already paused")
        with pausing.one(info.sandbox_id), _handle(info) as sandbox:
            await sandbox.suspend(memory=wanted.memory is not False)
        return no_content()

    one = "/sandboxes/{sandbox_id}"
    return [
        teams.route("POST", f"{one}/connect", connect_v1),
        teams.route("POST", f"/v2{one}/connect", connect_v2),
        teams.route("POST", f"{one}/resume", resume),
        teams.route("POST", f"{one}/pause", pause),
    ]


def _lease_routes(teams: TeamRoutes) -> Sequence[Route]:
    async def leased(request: TeamRequest, timeout_s: int, extend_only: bool) -> Response:
        leases.bounded(timeout_s, request.team.quotas.ttl_s)
        with await request.handle() as sandbox:
            try:
                await sandbox.set_lease(timeout_s, extend_only=extend_only)
            except StateError:
                raise Refusal(404, f"Sandbox '{sandbox.id}' is not running anymore") from None
        return no_content()

    async def timeout(request: TeamRequest) -> Response:
        return await leased(request, (await request.body(Timeout)).timeout, extend_only=False)

    async def refresh(request: TeamRequest) -> Response:
        wanted = (await request.body(Refresh)).duration
        return await leased(request, _REFRESH_S if wanted is None else wanted, extend_only=True)

    one = "/sandboxes/{sandbox_id}"
    return [
        teams.route("POST", f"{one}/timeout", timeout),
        teams.route("POST", f"{one}/refreshes", refresh),
    ]


def _network_route(teams: TeamRoutes, views: Views) -> Route:
    async def network(request: TeamRequest) -> Response:
        wanted = await request.body(Network)
        egress = egress_of(wanted, None, views.opened)
        kept = {NETWORK: kept_network(wanted), INTERNET: flag_of(wanted.allow_internet_access)}
        info = await request.found()
        if not await may_get(info, egress):
            raise Refusal(403, WIDER)
        with contextlib.closing(AsyncSandbox.of(info)) as sandbox:
            await sandbox.set_network(egress, attributes=kept)
        return no_content()

    return teams.route("PUT", "/sandboxes/{sandbox_id}/network", network)


class Busy:
    """Tracks sandboxes that are being paused. A second request is refused and does not wait for the first."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    @contextlib.contextmanager
    def one(self, sandbox_id: str) -> Iterator[None]:
        """Mark a sandbox as being paused.

        Raises:
            Refusal: The sandbox is being paused already (409).
        """
        if sandbox_id in self._ids:
            raise Refusal(409, f"Sandbox '{sandbox_id}' cannot be paused while in 'pausing' state")
        self._ids.add(sandbox_id)
        try:
            yield
        finally:
            self._ids.discard(sandbox_id)


def _handle(info: SandboxInfo) -> contextlib.closing[AsyncSandbox]:
    return contextlib.closing(AsyncSandbox.of(info))
