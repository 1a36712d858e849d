"""Routes of sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import InvalidSpecError
from atoll.protocol import (
    DefaultsRequest,
    ForkRequest,
    LimitsRequest,
    NetworkRequest,
    ResumeRequest,
    RollbackRequest,
    SnapshotRequest,
    SuspendRequest,
    TimeoutRequest,
)
from atoll.supervisor.api.makings import answer_made
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.lifecycle.callers import Caller
from atoll.supervisor.lifecycle.info import info_of
from atoll.supervisor.lifecycle.progress import how_far, told_if_slow
from atoll.supervisor.listing import page
from atoll.supervisor.logs import read_page
from atoll.supervisor.state.registry import Sandbox
from atoll.supervisor.system import System
from atoll.types import Progress, SandboxInfo, SandboxSpec

_BASE = "/v1/sandboxes"
_Wanted = TypeVar("_Wanted")


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty body."""


def sandbox_routes(system: System) -> list[Route]:
    """Everything under ``/v1/sandboxes``."""
    return [
        *_plain_routes(system),
        *_limit_routes(system),
        *_state_routes(system),
        *_branch_routes(system),
    ]


def _plain_routes(system: System) -> list[Route]:
    async def create(request: Request) -> Response:
        spec = await read_body(request, SandboxSpec)

        async def work(report: Report, caller: Caller) -> list[SandboxInfo]:
            sandbox = await system.creation.create(spec, report, caller)
            await system.templates.made(sandbox)
            return [info_of(sandbox, system.quotas)]

        return await answer_made(request, system, work, lambda made: made[0])

    async def listed(request: Request) -> Response:
        query = request.query_params
        states = [state for state in query.get("state", "").split(",") if state]
        infos = [info_of(sandbox, system.quotas) for sandbox in system.registry.sandboxes()]
        return json_answer(
            page(
                infos,
                states=states,
                metadata=_metadata(query.getlist("metadata")),
                team=query.get("team"),
                limit=_number(query.get("limit", "100"), "limit"),
                cursor=query.get("cursor"),
            )
        )

    async def info(request: Request) -> Response:
        return json_answer(info_of(_sandbox(system, request), system.quotas))

    async def kill(request: Request) -> Response:
        sandbox = _sandbox(system, request)

        async def work(_: Report) -> None:
            await system.kills.kill(sandbox)

        return await answer(request, system.tasks, work)

    async def stats(request: Request) -> Response:
        return json_answer(await system.usage.of(_sandbox(system, request)))

    async def history(request: Request) -> Response:
        sandbox, query = _sandbox(system, request), request.query_params
        start_s, end_s = (_moment(query.get(name), name) for name in ("start", "end"))
        return json_answer(system.history.of(sandbox, start_s, end_s))

    async def logs(request: Request) -> Response:
        path = system.paths.console(_sandbox(system, request).sandbox_id)
        offset = _number(request.query_params.get("offset", "0"), "offset")
        return json_answer(await asyncio.to_thread(read_page, path, offset))

    one = f"{_BASE}/{{ref}}"
    return [
        Route(_BASE, create, methods=["POST"]),
        Route(_BASE, listed),
        Route(one, info),
        Route(one, kill, methods=["DELETE"]),
        Route(f"{one}/stats", stats),
        Route(f"{one}/stats/history", history),
        Route(f"{one}/logs", logs),
    ]


def _state_routes(system: System) -> list[Route]:

    async def resume(sandbox: Sandbox, wanted: ResumeRequest, report: Report) -> None:
        async with told_if_slow(report, lambda: Progress(step="waking")):
            await system.wakes.resume(sandbox, wanted.timeout_s, memory=wanted.memory)

    async def wake(sandbox: Sandbox, wanted: ResumeRequest, report: Report) -> None:
        async with told_if_slow(report, lambda: Progress(step="waking")):
            await system.wakes.resume(sandbox, wanted.timeout_s, memory=wanted.memory, by_hand=False)

    async def pause(sandbox: Sandbox, _: _Nothing, __: Report) -> None:
        await system.pauses.pause(sandbox)

    async def suspend(sandbox: Sandbox, wanted: SuspendRequest, report: Report) -> None:
        # Stopping the supervisor and ending a lease are never refused: those sandboxes have to be stored.
        if wanted.memory:
            await system.quotas.check_disk(sandbox.row.team)
        with system.quotas.sleeping(sandbox.row):
            async with told_if_slow(report, partial(how_far, system.paths, sandbox)):
                await system.suspends.suspend(sandbox, memory=wanted.memory)

    return [
        _change_route(system, "pause", _Nothing, pause),
        _change_route(system, "suspend", SuspendRequest, suspend),
        _change_route(system, "resume", ResumeRequest, resume),
        _change_route(system, "wake", ResumeRequest, wake),
    ]


def _limit_routes(system: System) -> list[Route]:
    async def limits(sandbox: Sandbox, wanted: LimitsRequest, _: Report) -> None:
        await system.limits.change(sandbox, wanted.limits, best_effort=wanted.best_effort)

    async def network(sandbox: Sandbox, wanted: NetworkRequest, _: Report) -> None:
        await system.limits.change_network(sandbox, wanted.network)

    async def defaults(sandbox: Sandbox, wanted: DefaultsRequest, _: Report) -> None:
        await system.defaults.change(sandbox, wanted)

    async def timeout(sandbox: Sandbox, wanted: TimeoutRequest, _: Report) -> None:
        await system.leases.set_timeout(sandbox, wanted.timeout_s, extend_only=wanted.extend_only)

    return [
        _change_route(system, "limits", LimitsRequest, limits),
        _change_route(system, "network", NetworkRequest, network),
        _change_route(system, "defaults", DefaultsRequest, defaults),
        _change_route(system, "timeout", TimeoutRequest, timeout),
    ]


def _change_route(
    system: System,
    name: str,
    kind: type[_Wanted],
    change: Callable[[Sandbox, _Wanted, Report], Awaitable[None]],
) -> Route:
    """A route that changes one sandbox and returns its new state."""

    async def endpoint(request: Request) -> Response:
        sandbox, wanted = _sandbox(system, request), await read_body(request, kind)

        async def work(report: Report) -> object:
            await change(sandbox, wanted, report)
            return info_of(sandbox, system.quotas)

        return await answer(request, system.tasks, work)

    return Route(f"{_BASE}/{{ref}}/{name}", endpoint, methods=["POST"], name=name)


def _branch_routes(system: System) -> list[Route]:
    async def fork(request: Request) -> Response:
        sandbox, wanted = _sandbox(system, request), await read_body(request, ForkRequest)

        async def work(_: Report, caller: Caller) -> list[SandboxInfo]:
            return await system.forks.fork(
                sandbox, wanted.count, wanted.lifecycle, caller, names=wanted.names
            )

        return await answer_made(request, system, work, list)

    async def rollback(request: Request) -> Response:
        sandbox, wanted = _sandbox(system, request), await read_body(request, RollbackRequest)

        async def work(_: Report) -> object:
            await system.rollback.roll_back(sandbox, wanted.snapshot)
            return info_of(sandbox, system.quotas)

        return await answer(request, system.tasks, work)

    async def snapshot(request: Request) -> Response:
        sandbox, wanted = _sandbox(system, request), await read_body(request, SnapshotRequest)

        async def work(_: Report) -> object:
            return await system.snapshots.make(sandbox, wanted.name, wanted.comment, wanted.build_id)

        return await answer(request, system.tasks, work)

    one = f"{_BASE}/{{ref}}"
    return [
        Route(f"{one}/fork", fork, methods=["POST"]),
        Route(f"{one}/rollback", rollback, methods=["POST"]),
        Route(f"{one}/snapshots", snapshot, methods=["POST"]),
    ]


def _sandbox(system: System, request: Request) -> Sandbox:
    return system.registry.sandbox(request.path_params["ref"])


def _metadata(pairs: list[str]) -> dict[str, str]:
    wanted = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidSpecError(f"metadata={pair!r} has no value", hint="write metadata=NAME=VALUE")
        wanted[name] = value
    return wanted


def _moment(text: str | None, name: str) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidSpecError(f"{name}={text!r} is no Unix time") from None


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidSpecError(f"{name}={text!r} is no number") from None
