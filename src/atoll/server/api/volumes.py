"""Volumes: making and finding them with a key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import InUseError, VolumeNotFoundError
from atoll.sdk import AsyncVolumes
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.e2b.answers import Refusal, answer, no_content
from atoll.server.tokens import Tokens
from atoll.types import VolumeInfo

_ID = re.compile(r"[a-z][a-z0-9]{19}")
_ONE = "/volumes/{volume_id}"


class NewVolume(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /volumes``."""

    name: Annotated[str, Meta(max_length=512)]


class Volume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume, with the token for its files if one was asked for."""

    volume_id: str = msgspec.field(name="volumeID")
    name: str
    token: str | None = None


def volume_routes(teams: TeamRoutes, tokens: Tokens) -> Sequence[Route]:
    """Return the routes of ``/volumes``."""

    def with_token(info: VolumeInfo) -> Volume:
        return Volume(volume_id=info.volume_id, name=info.name, token=tokens.volume(info.volume_id))

    async def create(request: TeamRequest) -> Response:
        wanted = await request.body(NewVolume)
        return answer(with_token(await AsyncVolumes.create(wanted.name, team=request.team.name)), 201)

    async def listed(request: TeamRequest) -> Response:
        infos = await AsyncVolumes.list(team=request.team.name)
        return answer([Volume(volume_id=info.volume_id, name=info.name) for info in infos])

    async def info(request: TeamRequest) -> Response:
        return answer(with_token(await owned(request)))

    async def remove(request: TeamRequest) -> Response:
        found = await owned(request)
        try:
            await AsyncVolumes.delete(found.volume_id)
        except InUseError:
            raise Refusal(409, f"Volume {found.volume_id} is mounted by a sandbox") from None
        return no_content()

    async def owned(request: TeamRequest) -> VolumeInfo:
        volume_id = str(request.http.path_params["volume_id"])
        try:
            if _ID.fullmatch(volume_id):
                return await AsyncVolumes.get(volume_id, team=request.team.name)
        except VolumeNotFoundError:
            pass
        raise Refusal(404, f"Volume {volume_id[:64]} not found")

    return [
        teams.route("POST", "/volumes", create),
        teams.route("GET", "/volumes", listed),
        teams.route("GET", _ONE, info),
        teams.route("DELETE", _ONE, remove),
    ]
