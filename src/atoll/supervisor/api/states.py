"""Routes that pause, suspend, wake and unplug sandboxes."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import ResumeRequest, SuspendRequest, UnplugRequest
from atoll.supervisor.api.changes import Changes
from atoll.supervisor.api.reply import Report, answer, read_body
from atoll.supervisor.lifecycle.pause import Pauses
from atoll.supervisor.lifecycle.progress import how_far, told_if_slow
from atoll.supervisor.lifecycle.suspend import Suspends
from atoll.supervisor.lifecycle.unplug import Unplugs
from atoll.supervisor.lifecycle.wake import Wakes
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import Progress


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty body."""


def state_routes(
    *, changes: Changes, pauses: Pauses, suspends: Suspends, wakes: Wakes, quotas: TeamQuotas, paths: Paths
) -> list[Route]:
    """``pause``, ``suspend``, ``resume`` and ``wake`` of a sandbox."""

    async def resume(sandbox: Sandbox, wanted: ResumeRequest, report: Report) -> None:
        async with told_if_slow(report, lambda: Progress(step="waking")):
            await wakes.resume(sandbox, wanted.ttl_s, memory=wanted.memory)

    async def wake(sandbox: Sandbox, wanted: ResumeRequest, report: Report) -> None:
        async with told_if_slow(report, lambda: Progress(step="waking")):
            await wakes.resume(sandbox, wanted.ttl_s, memory=wanted.memory, by_hand=False)

    async def pause(sandbox: Sandbox, _: _Nothing, __: Report) -> None:
        await pauses.pause(sandbox)

    async def suspend(sandbox: Sandbox, wanted: SuspendRequest, report: Report) -> None:
        # The quota binds only requests of clients: at a stop or the end of a lease, the sandbox has to be
        # stored.
        if wanted.memory:
            await quotas.check_disk(sandbox.row.team)
        with quotas.sleeping(sandbox.row):
            async with told_if_slow(report, partial(how_far, paths, sandbox)):
                await suspends.suspend(sandbox, memory=wanted.memory)

    return [
        changes.route("pause", _Nothing, pause),
        changes.route("suspend", SuspendRequest, suspend),
        changes.route("resume", ResumeRequest, resume),
        changes.route("wake", ResumeRequest, wake),
    ]


def unplug_routes(*, changes: Changes, unplugs: Unplugs, tasks: Tasks) -> list[Route]:
    """``unplug`` and ``replug`` of a sandbox, and ``/v1/unplug-all``."""

    async def unplug(sandbox: Sandbox, wanted: UnplugRequest, _: Report) -> None:
        await unplugs.unplug(sandbox, wanted.reason)

    async def replug(sandbox: Sandbox, _: _Nothing, __: Report) -> None:
        await unplugs.replug(sandbox)

    async def unplug_all(request: Request) -> Response:
        wanted = await read_body(request, UnplugRequest)

        async def work(_: Report) -> object:
            return await unplugs.unplug_all(wanted.reason)

        return await answer(request, tasks, work)

    return [
        changes.route("unplug", UnplugRequest, unplug),
        changes.route("replug", _Nothing, replug),
        Route("/v1/unplug-all", unplug_all, methods=["POST"]),
    ]
