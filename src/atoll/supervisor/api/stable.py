"""The part of the API that never changes.

With it, any client can put any supervisor's sandboxes to sleep and replace the supervisor.
"""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import EngineError
from atoll.protocol import PROTOCOL_VERSION, Hello, Listed, ListedSandbox
from atoll.supervisor.api.reply import Report, answer, json_answer
from atoll.supervisor.stopping import Stopping
from atoll.supervisor.system import System
from atoll.version import __version__


def stable_routes(system: System, stopping: Stopping) -> list[Route]:
    """``/hello``, ``/list``, ``/suspend-all`` and ``/stop``."""

    async def hello(_: Request) -> Response:
        return json_answer(
            Hello(
                product="atoll",
                version=__version__,
                protocol=PROTOCOL_VERSION,
                pid=os.getpid(),
                home=str(system.home.path),
            )
        )

    async def listed(_: Request) -> Response:
        rows = [sandbox.info() for sandbox in system.registry.sandboxes()]
        return json_answer(
            Listed(
                sandboxes=[
                    ListedSandbox(sandbox_id=row.sandbox_id, name=row.name, state=row.state) for row in rows
                ]
            )
        )

    async def suspend_all(request: Request) -> Response:
        async def work(_: Report) -> object:
            return await system.suspend_all()

        return await answer(request, system.tasks, work)

    async def stop(request: Request) -> Response:
        force = request.query_params.get("force") == "1"

        async def work(_: Report) -> object:
            failed = (await system.suspend_all()).failed
            if failed and not force:
                raise EngineError(
                    f"cannot suspend {', '.join(f'{id_}: {why}' for id_, why in failed.items())}",
                    hint="kill those, or stop with force: they go on without a supervisor",
                )
            stopping.ask(asleep=not force)
            return {"stopping": True, "failed": failed}

        return await answer(request, system.tasks, work)

    return [
        Route("/hello", hello),
        Route("/list", listed),
        Route("/suspend-all", suspend_all, methods=["POST"]),
        Route("/stop", stop, methods=["POST"]),
    ]
