"""Routes about the usage of sandboxes."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.supervisor.api.query import unix_time
from atoll.supervisor.api.reply import json_answer
from atoll.supervisor.monitors.history import History
from atoll.supervisor.monitors.usage import Usage
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.tenants.model_ledger import ModelLedger

_STATS = "/v1/sandboxes/{ref}/stats"


def usage_routes(*, inventory: Inventory, usage: Usage, history: History, ledger: ModelLedger) -> list[Route]:
    """Everything under ``/v1/sandboxes/REF/stats``."""

    async def stats(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        told, models = await usage.of(sandbox), sandbox.row.models
        budget = None if models is None else ledger.budget(models.budget)
        return json_answer(msgspec.structs.replace(told, models=budget))

    async def past(request: Request) -> Response:
        sandbox, query = inventory.sandbox(request.path_params["ref"]), request.query_params
        start_s, end_s = (unix_time(query.get(name), name) for name in ("start", "end"))
        return json_answer(history.of(sandbox, start_s, end_s))

    return [Route(_STATS, stats), Route(f"{_STATS}/history", past)]
