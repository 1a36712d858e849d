"""What E2B has and this server does not. The answers are clear, and only for clients with a key."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b.answers import Refusal


def unsupported_routes(teams: TeamRoutes) -> Sequence[Route]:
    """Return the routes for secrets."""

    async def secrets(request: TeamRequest) -> Response:
        del request
        raise Refusal(501, "secrets are not supported by this server yet")

    return [
        teams.route("GET", "/secrets", secrets),
        teams.route("POST", "/secrets", secrets),
        teams.route("GET", "/secrets/{ref}", secrets),
        teams.route("POST", "/secrets/{ref}", secrets),
        teams.route("DELETE", "/secrets/{ref}", secrets),
    ]
