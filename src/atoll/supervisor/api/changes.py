"""Routes that change one sandbox and answer with its new state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import (
    DefaultsRequest,
    KeepAwakeRequest,
    LeaseRequest,
    LimitsRequest,
    NetworkRequest,
    RollbackRequest,
)
from atoll.supervisor.api.reply import Report, answer, read_body
from atoll.supervisor.lifecycle.info import info_of
from atoll.supervisor.lifecycle.limit_changes import LimitChanges
from atoll.supervisor.lifecycle.program_defaults import Defaults
from atoll.supervisor.lifecycle.rollback import Rollback
from atoll.supervisor.monitors.idle_monitor import IdleMonitor
from atoll.supervisor.monitors.lease_expiry import LeaseExpiry
from atoll.supervisor.state.drain_gate import DrainGate
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.quotas import TeamQuotas

_Wanted = TypeVar("_Wanted")


@dataclass(eq=False, repr=False)
class Changes:
    """Makes routes that change a sandbox."""

    inventory: Inventory
    quotas: TeamQuotas
    tasks: Tasks

    def route(
        self, name: str, kind: type[_Wanted], change: Callable[[Sandbox, _Wanted, Report], Awaitable[None]]
    ) -> Route:
        """A route ``POST /v1/sandboxes/REF/NAME`` that does ``change`` with a body of this kind."""

        async def endpoint(request: Request) -> Response:
            sandbox = self.inventory.sandbox(request.path_params["ref"])
            wanted = await read_body(request, kind)

            async def work(report: Report) -> object:
                await change(sandbox, wanted, report)
                return info_of(sandbox, self.quotas)

            return await answer(request, self.tasks, work)

        return Route(f"/v1/sandboxes/{{ref}}/{name}", endpoint, methods=["POST"], name=name)


def change_routes(
    *,
    changes: Changes,
    limits: LimitChanges,
    defaults: Defaults,
    leases: LeaseExpiry,
    idle: IdleMonitor,
    rollback: Rollback,
    gate: DrainGate,
) -> list[Route]:
    """The routes that change a sandbox's limits, policy, defaults and lease, or roll it back."""

    async def set_limits(sandbox: Sandbox, wanted: LimitsRequest, _: Report) -> None:
        await limits.change(sandbox, wanted.limits, best_effort=wanted.best_effort)

    async def set_network(sandbox: Sandbox, wanted: NetworkRequest, _: Report) -> None:
        await limits.change_network(sandbox, wanted.network, wanted.attributes)

    async def set_defaults(sandbox: Sandbox, wanted: DefaultsRequest, _: Report) -> None:
        await defaults.change(sandbox, wanted)

    async def set_lease(sandbox: Sandbox, wanted: LeaseRequest, _: Report) -> None:
        await leases.set_lease(sandbox, wanted.ttl_s, extend_only=wanted.extend_only)

    async def keep_awake(sandbox: Sandbox, wanted: KeepAwakeRequest, _: Report) -> None:
        await idle.keep_awake(sandbox, wanted.seconds)

    async def roll_back(sandbox: Sandbox, wanted: RollbackRequest, _: Report) -> None:
        with gate.passing():
            await rollback.roll_back(sandbox, wanted.snapshot)

    return [
        changes.route("limits", LimitsRequest, set_limits),
        changes.route("network", NetworkRequest, set_network),
        changes.route("defaults", DefaultsRequest, set_defaults),
        changes.route("lease", LeaseRequest, set_lease),
        changes.route("keep-awake", KeepAwakeRequest, keep_awake),
        changes.route("rollback", RollbackRequest, roll_back),
    ]
