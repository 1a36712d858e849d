"""What E2B has and this server does not. The answers are clear, and only for clients with a key."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.server.api.team_request import TeamRequest, route
from atoll.server.e2b.answers import Refusal
from atoll.server.parts import Parts


def unsupported_routes(parts: Parts) -> Sequence[Route]:
    """Return the routes for secrets."""

    async def secrets(request: TeamRequest) -> Response:
        del request
        raise Refusal(501, "secrets are not supported by this server yet")

    return [
        route(parts, "GET", "/secrets", secrets),
        route(parts, "POST", "/secrets", secrets),
        route(parts, "GET", "/secrets/{ref}", secrets),
        route(parts, "POST", "/secrets/{ref}", secrets),
        route(parts, "DELETE", "/secrets/{ref}", secrets),
    ]
