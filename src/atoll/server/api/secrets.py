"""Secrets: making, listing, changing and erasing them with a key. No answer has a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, field
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import SecretNotFoundError
from atoll.sdk import AsyncSecrets
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b.answers import Refusal, answer, no_content
from atoll.server.e2b.listing import limit_of
from atoll.server.e2b.views import moment
from atoll.types import SecretInfo
from atoll.types.internal import SECRET_BYTES_MOST

_ONE = "/secrets/{ref}"
_Value = Annotated[str, Meta(max_length=SECRET_BYTES_MOST)]
_Labels = Annotated[dict[str, str], Meta(max_length=32)]


class NewSecret(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /secrets``."""

    name: Annotated[str, Meta(max_length=128)]
    value: _Value
    metadata: _Labels | None = None

    def __repr__(self) -> str:
        return f"NewSecret(name={self.name!r}, …)"


class SecretUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /secrets/REF``: a new value. Without metadata, the old stays."""

    value: _Value
    metadata: _Labels | None = None

    def __repr__(self) -> str:
        return "SecretUpdate(…)"


class Secret(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The view of a secret for clients."""

    secret_id: str = field(name="secretID")
    name: str
    current_version: int
    metadata: dict[str, str]
    created_at: datetime
    updated_at: datetime


def secret_routes(teams: TeamRoutes) -> Sequence[Route]:
    """Return the routes of ``/secrets``."""

    async def listed(request: TeamRequest) -> Response:
        infos = await AsyncSecrets.list(team=request.team.name)
        shown, token = _page(infos, request.query)
        return answer([_told(info) for info in shown], headers={"X-Next-Token": token} if token else None)

    async def create(request: TeamRequest) -> Response:
        wanted = await request.body(NewSecret)
        made = await AsyncSecrets.create(
            wanted.name, wanted.value, metadata=wanted.metadata, team=request.team.name
        )
        return answer(_told(made), 201)

    async def info(request: TeamRequest) -> Response:
        try:
            found = await AsyncSecrets.get(_ref(request), team=request.team.name)
        except SecretNotFoundError:
            raise _missing(request) from None
        return answer(_told(found))

    async def update(request: TeamRequest) -> Response:
        wanted = await request.body(SecretUpdate)
        try:
            changed = await AsyncSecrets.update(
                _ref(request), wanted.value, metadata=wanted.metadata, team=request.team.name
            )
        except SecretNotFoundError:
            raise _missing(request) from None
        return answer(_told(changed))

    async def remove(request: TeamRequest) -> Response:
        try:
            await AsyncSecrets.delete(_ref(request), team=request.team.name)
        except SecretNotFoundError:
            raise _missing(request) from None
        return no_content()

    return [
        teams.route("GET", "/secrets", listed),
        teams.route("POST", "/secrets", create),
        teams.route("GET", _ONE, info),
        teams.route("POST", _ONE, update),
        teams.route("DELETE", _ONE, remove),
    ]


def _ref(request: TeamRequest) -> str:
    return str(request.http.path_params["ref"])


def _missing(request: TeamRequest) -> Refusal:
    return Refusal(404, f"Secret {_ref(request)[:64]} not found")


def _page(infos: Sequence[SecretInfo], asked: Mapping[str, str]) -> tuple[Sequence[SecretInfo], str | None]:
    """Return a page of secrets, oldest first, and the token of the next page: the id of the last one shown."""
    limit, token = limit_of(asked), asked.get("nextToken")
    begin = 0
    if token:
        places = [place for place, info in enumerate(infos) if info.secret_id == token]
        if not places:
            raise Refusal(400, "nextToken must come from the previous page")
        begin = places[0] + 1
    shown = infos[begin : begin + limit]
    return shown, shown[-1].secret_id if len(infos) > begin + limit else None


def _told(info: SecretInfo) -> Secret:
    return Secret(
        secret_id=info.secret_id,
        name=info.name,
        current_version=info.version,
        metadata=info.metadata,
        created_at=moment(info.created_at),
        updated_at=moment(info.changed_at),
    )
