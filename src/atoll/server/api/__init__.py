"""The REST API. Each noun has a file that gives its routes."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.host import Home
from atoll.server.api.builds import build_routes
from atoll.server.api.docs import documentation_routes
from atoll.server.api.forks import fork_routes
from atoll.server.api.logs import log_routes
from atoll.server.api.metrics import metric_routes
from atoll.server.api.sandboxes import sandbox_routes
from atoll.server.api.snapshots import snapshot_routes
from atoll.server.api.states import state_routes
from atoll.server.api.templates import template_routes
from atoll.server.api.unsupported import unsupported_routes
from atoll.server.api.volume_content import volume_content_routes
from atoll.server.api.volumes import volume_routes
from atoll.server.builds.builds import Builds
from atoll.server.builds.logs import BuildLogs
from atoll.server.builds.uploads import Uploads
from atoll.server.e2b.answers import answer
from atoll.server.e2b.host_capacity import host_capacity
from atoll.server.e2b.idempotency import Idempotency
from atoll.server.e2b.template_views import TemplateViews
from atoll.server.e2b.views import Views
from atoll.server.parts import Parts

__all__ = ["routes"]


def routes(parts: Parts) -> list[Route]:
    """Return all routes of the API."""
    settings, home = parts.settings, Home.default()
    capacity, builds = host_capacity(home.path), Builds(BuildLogs(home.path / "server" / "builds"))
    uploads = Uploads(home.path / "server" / "uploads", parts.tokens)
    views = Views(
        parts.tokens,
        capacity,
        domain=settings.public_domain or f"localhost:{settings.port}",
    )
    return [
        Route("/health", _health),
        *documentation_routes(),
        *metric_routes(parts, views),
        *log_routes(parts),
        *sandbox_routes(parts, views, Idempotency(time.monotonic)),
        *state_routes(parts, views),
        *fork_routes(parts, views),
        *snapshot_routes(parts),
        *build_routes(parts, builds, uploads),
        *template_routes(parts, TemplateViews(capacity), builds),
        *volume_routes(parts),
        *volume_content_routes(parts),
        *unsupported_routes(parts),
    ]


async def _health(request: Request) -> Response:
    del request
    return answer({"status": "ok"})
