"""The route that forks a sandbox."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.protocol import ForkRequest
from atoll.supervisor.api.reply import Report, read_body
from atoll.supervisor.api.requests import Makings
from atoll.supervisor.lifecycle.callers import Caller
from atoll.supervisor.lifecycle.fork import Forks
from atoll.supervisor.state.registry import Registry
from atoll.types import SandboxInfo


def fork_routes(*, registry: Registry, forks: Forks, makings: Makings) -> list[Route]:
    """``/v1/sandboxes/REF/fork``."""

    async def fork(request: Request) -> Response:
        sandbox = registry.sandbox(request.path_params["ref"])
        wanted = await read_body(request, ForkRequest)

        async def work(_: Report, caller: Caller) -> list[SandboxInfo]:
            return await forks.fork(sandbox, wanted.count, wanted.lifecycle, caller, names=wanted.names)

        return await makings.answer(request, work, list)

    return [Route("/v1/sandboxes/{ref}/fork", fork, methods=["POST"])]
