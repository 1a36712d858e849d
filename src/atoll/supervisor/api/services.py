"""Routes of the services of a sandbox: ``/v1/sandboxes/REF/services``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.lifecycle.services import Services
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks
from atoll.types import ServiceSpec


def service_routes(*, inventory: Inventory, services: Services, tasks: Tasks) -> list[Route]:
    """The routes that add services, remove them, and tell how they are."""

    async def add(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        spec = await read_body(request, ServiceSpec)

        async def work(_: Report) -> object:
            return await services.add(sandbox, spec)

        return await answer(request, tasks, work)

    async def list_all(request: Request) -> Response:
        return json_answer(await services.list(inventory.sandbox(request.path_params["ref"])))

    async def remove(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        name = request.path_params["name"]

        async def work(_: Report) -> object:
            await services.remove(sandbox, name)
            return None

        return await answer(request, tasks, work)

    every = "/v1/sandboxes/{ref}/services"
    return [
        Route(every, add, methods=["POST"]),
        Route(every, list_all, methods=["GET"]),
        Route(f"{every}/{{name}}", remove, methods=["DELETE"]),
    ]
