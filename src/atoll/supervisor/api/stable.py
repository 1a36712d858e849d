"""The part of the API that never changes.

Any client can use it to put any supervisor's sandboxes to sleep and to replace the supervisor.
"""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import EngineError
from atoll.host import Home
from atoll.protocol import PROTOCOL_VERSION, Hello, Listed, ListedSandbox
from atoll.supervisor.api.reply import Report, answer, json_answer
from atoll.supervisor.lifecycle.suspend_all import SuspendAll
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.stopping import Stopping
from atoll.version import __version__


def stable_routes(
    *, home: Home, inventory: Inventory, suspend_all: SuspendAll, stopping: Stopping, tasks: Tasks
) -> list[Route]:
    """``/hello``, ``/list``, ``/suspend-all`` and ``/stop``."""

    async def hello(_: Request) -> Response:
        return json_answer(
            Hello(
                product="atoll",
                version=__version__,
                protocol=PROTOCOL_VERSION,
                pid=os.getpid(),
                home=str(home.path),
            )
        )

    async def listed(_: Request) -> Response:
        rows = [sandbox.info() for sandbox in inventory.sandboxes()]
        return json_answer(
            Listed(
                sandboxes=[
                    ListedSandbox(sandbox_id=row.sandbox_id, name=row.name, state=row.state) for row in rows
                ]
            )
        )

    async def suspend(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await suspend_all.run()

        return await answer(request, tasks, work)

    async def stop(request: Request) -> Response:
        force = request.query_params.get("force") == "1"

        async def work(_: Report) -> object:
            failed = (await suspend_all.run()).failed
            if failed and not force:
                raise EngineError(
                    f"cannot suspend {', '.join(f'{id_}: {why}' for id_, why in failed.items())}",
                    hint="kill them, or stop with force: they keep running without a supervisor",
                )
            stopping.ask(asleep=not force)
            return {"stopping": True, "failed": failed}

        return await answer(request, tasks, work)

    return [
        Route("/hello", hello),
        Route("/list", listed),
        Route("/suspend-all", suspend, methods=["POST"]),
        Route("/stop", stop, methods=["POST"]),
    ]
