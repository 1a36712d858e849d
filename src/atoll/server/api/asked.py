"""A request to the API whose team is known, and routes of such."""

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
from atoll.server.e2b.answers import read_json
from atoll.server.e2b.owned import OwnedSandboxes, missing
from atoll.server.parts import Parts
from atoll.types import SandboxInfo, TeamInfo

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Asked:
    """A request and whose it is."""

    request: Request
    team: TeamInfo
    owned: OwnedSandboxes

    @property
    def query(self) -> Mapping[str, str]:
        """The query part; of a name that is given twice the last value."""
        return self.request.query_params

    @property
    def ref(self) -> str:
        """The sandbox's id, as the client wrote it."""
        return str(self.request.path_params["sandbox_id"])

    async def body(self, kind: type[_Value]) -> _Value:
        """The body.

        Raises:
            Refusal: It is too long (413), or not what it must be (400).
        """
        return await read_json(self.request, kind)

    async def sandbox(self) -> SandboxInfo:
        """The team's sandbox that the path names, as it is now.

        Raises:
            Refusal: There is none (404).
        """
        return await self.owned.look(self.ref, self.team.name)

    async def handle(self) -> contextlib.closing[AsyncSandbox]:
        """A handle, as a context, on the team's sandbox that the path names: it may have been killed since.

        Raises:
            Refusal: There never was one (404).
        """
        return contextlib.closing(AsyncSandbox.of(await self.found()))

    async def found(self) -> SandboxInfo:
        """What never changes of the team's sandbox that the path names.

        Raises:
            Refusal: There never was one (404).
        """
        return await self.owned.find(self.ref, self.team.name)


Endpoint = Callable[[Asked], Awaitable[Response]]


def route(parts: Parts, method: str, path: str, endpoint: Endpoint) -> Route:
    """A route that answers only those who have a key, and to whom a killed sandbox is one that never was."""

    async def guarded(request: Request) -> Response:
        team = await parts.access.team_of(request.headers)
        asked = Asked(request, team, parts.owned)
        try:
            return await endpoint(asked)
        except SandboxNotFoundError:
            if "sandbox_id" not in request.path_params:
                raise
            raise missing(asked.ref) from None

    return Route(path, guarded, methods=[method])
