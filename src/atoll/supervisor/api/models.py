"""Routes of the models that the home offers, of their prices, and of what was used."""

from __future__ import annotations

import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import InvalidSpecError, SandboxNotFoundError
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.tenants.model_ledger import SANDBOX_BUDGET, ModelLedger
from atoll.supervisor.tenants.model_prices import told_prices
from atoll.supervisor.tenants.models import Models
from atoll.types import ModelReport, ModelSetup


def model_routes(*, models: Models, ledger: ModelLedger, inventory: Inventory, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/models``."""

    async def shown(_: Request) -> Response:
        return json_answer(models.setup)

    async def replaced(request: Request) -> Response:
        wanted = await read_body(request, ModelSetup)

        async def work(_: Report) -> object:
            await models.set(wanted)
            return models.setup

        return await answer(request, tasks, work)

    async def used(request: Request) -> Response:
        query = request.query_params
        ref, team, since = query.get("sandbox"), query.get("team"), _day(query.get("since", ""))
        if ref is None:
            names = [*models.budgets_of(team), *models.budgets_of_delegations(team)]
            uses = ledger.uses(team=team, since=since)
        else:
            sandbox_id, names = _sandbox(models, inventory, ref)
            uses = ledger.uses(sandbox_id=sandbox_id, team=team, since=since)
        found = [told for name in names if (told := ledger.budget(name)) is not None]
        return json_answer(ModelReport(uses=uses, budgets=found))

    async def prices(_: Request) -> Response:
        today = datetime.datetime.fromtimestamp(models.ledger.clock(), datetime.UTC).date()
        return json_answer(told_prices(models.setup, models.table(), today))

    return [
        Route("/v1/models", shown),
        Route("/v1/models", replaced, methods=["PUT"]),
        Route("/v1/models/usage", used),
        Route("/v1/models/prices", prices),
    ]


def _sandbox(models: Models, inventory: Inventory, ref: str) -> tuple[str, list[str]]:
    """A sandbox's id and the budgets that it spends. A killed one is known by its id."""
    try:
        row = inventory.sandbox(ref).row
    except SandboxNotFoundError:
        return ref, [f"{SANDBOX_BUDGET}{ref}"]
    return row.sandbox_id, models.budgets_of_sandbox(row)


def _day(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise InvalidSpecError(f"since is {text!r}"[:200], hint="give a day as 2026-11-28") from None
