"""API requests of a known team, and their routes."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import SandboxNotFoundError
from atoll.sdk import AsyncSandbox
from atoll.server.auth.access import Access
from atoll.server.e2b.answers import read_json
from atoll.server.e2b.sandbox_lookup import SandboxLookup, missing
from atoll.types import SandboxInfo, TeamInfo

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class TeamRequest:
    """A request and its team."""

    http: Request
    team: TeamInfo
    sandboxes: SandboxLookup

    @property
    def query(self) -> Mapping[str, str]:
        """Return the query part. If a name is repeated, its last value counts."""
        return self.http.query_params

    @property
    def ref(self) -> str:
        """Return the sandbox's id as the client wrote it."""
        return str(self.http.path_params["sandbox_id"])

    async def body(self, kind: type[_Value]) -> _Value:
        """Return the body as ``kind``.

        Raises:
            Refusal: The body is too long (413), or invalid (400).
        """
        return await read_json(self.http, kind)

    async def sandbox(self) -> SandboxInfo:
        """Return the current state of the team's sandbox that the path names.

        Raises:
            Refusal: There is no such sandbox (404).
        """
        return await self.sandboxes.look(self.ref, self.team.name)

    async def handle(self) -> contextlib.closing[AsyncSandbox]:
        """Return a handle, as a context, on the team's sandbox that the path names.

        It may have been killed since.

        Raises:
            Refusal: There never was such a sandbox (404).
        """
        return contextlib.closing(AsyncSandbox.of(await self.found()))

    async def found(self) -> SandboxInfo:
        """Return the constant properties of the team's sandbox that the path names.

        Raises:
            Refusal: There never was such a sandbox (404).
        """
        return await self.sandboxes.find(self.ref, self.team.name)


Endpoint = Callable[[TeamRequest], Awaitable[Response]]


class TeamRoutes:
    """Makes the routes for clients with a key.

    Args:
        access: Tells which team a request belongs to.
        sandboxes: Finds sandboxes by id and team.
    """

    def __init__(self, access: Access, sandboxes: SandboxLookup) -> None:
        self._access = access
        self._sandboxes = sandboxes

    def route(self, method: str, path: str, endpoint: Endpoint) -> Route:
        """Make a route. A killed sandbox looks as if it had never existed."""

        async def guarded(request: Request) -> Response:
            team = await self._access.team_of(request.headers)
            wanted = TeamRequest(request, team, self._sandboxes)
            try:
                return await endpoint(wanted)
            except SandboxNotFoundError:
                if "sandbox_id" not in request.path_params:
                    raise
                raise missing(wanted.ref) from None

        return Route(path, guarded, methods=[method])
