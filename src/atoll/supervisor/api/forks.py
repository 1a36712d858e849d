"""The routes that fork a sandbox, compare it with others, and promote a fork."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import DiffRequest, ForkRequest, PromoteRequest
from atoll.supervisor.api.reply import Report, answer, read_body
from atoll.supervisor.api.requests import caller_of
from atoll.supervisor.lifecycle.callers import Callers
from atoll.supervisor.lifecycle.diff import Diffs
from atoll.supervisor.lifecycle.fork import Forks
from atoll.supervisor.lifecycle.progress import told_if_slow
from atoll.supervisor.lifecycle.promote import Promotions
from atoll.supervisor.state.drain_gate import DrainGate
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks
from atoll.types import Progress, SandboxInfo


def fork_routes(
    *,
    inventory: Inventory,
    forks: Forks,
    promotions: Promotions,
    diffs: Diffs,
    callers: Callers,
    gate: DrainGate,
    tasks: Tasks,
) -> list[Route]:
    """``fork``, ``diff`` and ``promote`` under ``/v1/sandboxes/REF``."""

    async def fork(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        wanted = await read_body(request, ForkRequest)
        caller = caller_of(request, callers)

        async def work(_: Report) -> list[SandboxInfo]:
            with gate.passing():
                async with callers.waiting(caller):
                    copies = await forks.fork(
                        sandbox,
                        wanted.count,
                        wanted.lifecycle,
                        caller,
                        names=wanted.names,
                        delegation=wanted.delegation,
                        models=wanted.models,
                    )
                    caller.made = [copy.sandbox_id for copy in copies]
                    return copies

        return await answer(request, tasks, work)

    async def diff(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        wanted = await read_body(request, DiffRequest)

        async def work(report: Report) -> object:
            async with told_if_slow(report, lambda: Progress(step="comparing")):
                return await diffs.diff(sandbox, wanted.base, wanted.paths)

        return await answer(request, tasks, work, ends_with_client=True)

    async def promote(request: Request) -> Response:
        original = inventory.sandbox(request.path_params["ref"])
        wanted = await read_body(request, PromoteRequest)
        winner = inventory.sandbox(wanted.winner)

        async def work(report: Report) -> object:
            with gate.passing():
                async with told_if_slow(report, lambda: Progress(step="promoting")):
                    return await promotions.promote(original, winner, wanted.name)

        return await answer(request, tasks, work)

    return [
        Route("/v1/sandboxes/{ref}/fork", fork, methods=["POST"]),
        Route("/v1/sandboxes/{ref}/diff", diff, methods=["POST"]),
        Route("/v1/sandboxes/{ref}/promote", promote, methods=["POST"]),
    ]
