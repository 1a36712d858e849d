"""The REST API. Each noun has a file that gives its routes."""

from __future__ import annotations

import ipaddress
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from atoll.host import Home
from atoll.server.api.builds import build_routes
from atoll.server.api.docs import documentation_routes
from atoll.server.api.forks import fork_routes
from atoll.server.api.logs import log_routes
from atoll.server.api.metrics import metric_routes
from atoll.server.api.prometheus import prometheus_routes
from atoll.server.api.sandboxes import sandbox_routes
from atoll.server.api.secrets import secret_routes
from atoll.server.api.snapshots import snapshot_routes
from atoll.server.api.states import state_routes
from atoll.server.api.team_request import TeamRoutes
from atoll.server.api.templates import template_routes
from atoll.server.api.volume_content import volume_content_routes
from atoll.server.api.volumes import volume_routes
from atoll.server.auth.access import Access
from atoll.server.builds.builds import Builds
from atoll.server.builds.logs import BuildLogs
from atoll.server.builds.uploads import Uploads
from atoll.server.e2b.answers import answer
from atoll.server.e2b.host_capacity import host_capacity
from atoll.server.e2b.idempotency import Idempotency
from atoll.server.e2b.sandbox_lookup import SandboxLookup
from atoll.server.e2b.template_views import TemplateViews
from atoll.server.e2b.views import Views
from atoll.server.remote import remote_routes
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens

__all__ = ["routes"]


def routes(settings: Settings, tokens: Tokens, access: Access) -> list[BaseRoute]:
    """Return all routes of the API."""
    home, teams = Home.default(), TeamRoutes(access, SandboxLookup())
    capacity, builds = host_capacity(home.path), Builds(BuildLogs(home.path / "server" / "builds"))
    uploads = Uploads(home.path / "server" / "uploads", tokens)
    views = Views(
        tokens,
        capacity,
        domain=settings.public_domain or f"localhost:{settings.port}",
        opened=[ipaddress.ip_network(text) for text in settings.private_ranges],
    )
    return [
        Route("/health", _health),
        *documentation_routes(),
        *prometheus_routes(tokens),
        *metric_routes(teams, views),
        *log_routes(teams),
        *sandbox_routes(teams, views, Idempotency(time.monotonic)),
        *state_routes(teams, views),
        *fork_routes(teams, views),
        *snapshot_routes(teams),
        *build_routes(teams, settings, builds, uploads),
        *template_routes(teams, TemplateViews(capacity), builds),
        *volume_routes(teams, tokens),
        *volume_content_routes(tokens, access),
        *secret_routes(teams),
        *remote_routes(settings, tokens, access, builds, uploads),
    ]


async def _health(request: Request) -> Response:
    del request
    return answer({"status": "ok"})
