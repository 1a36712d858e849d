"""The route by which a client holds a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.supervisor.api.reply import NDJSON
from atoll.supervisor.lifecycle.holds import Holds
from atoll.supervisor.lifecycle.info import info_of
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.tenants.quotas import TeamQuotas


def hold_routes(*, inventory: Inventory, quotas: TeamQuotas, holds: Holds) -> list[Route]:
    """``hold`` under ``/v1/sandboxes/REF``."""

    async def hold(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        binds = request.query_params.get("binds") == "1"
        return StreamingResponse(_held(holds, quotas, sandbox, binds=binds), media_type=NDJSON)

    return [Route("/v1/sandboxes/{ref}/hold", hold, methods=["POST"])]


async def _held(holds: Holds, quotas: TeamQuotas, sandbox: Sandbox, *, binds: bool) -> AsyncIterator[bytes]:
    """Send the sandbox's info, then only empty lines. The client holds it until this answer ends."""
    async with contextlib.aclosing(holds.hold(sandbox, binds=binds)) as beats:
        async for is_first in beats:
            yield (msgspec.json.encode(info_of(sandbox, quotas)) if is_first else b"") + b"\n"
