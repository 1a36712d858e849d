"""Builds of templates: uploading files, beginning a build, and its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.sdk import AsyncTemplates
from atoll.server.api.team_request import TeamRequest, TeamRoutes
from atoll.server.api.templates import own_ref, plain_route
from atoll.server.builds.builds import Builds
from atoll.server.builds.uploads import Uploads, pieces_of
from atoll.server.e2b.answers import Refusal, answer
from atoll.server.e2b.build_steps import archives_of, spec_of
from atoll.server.e2b.template_source import with_fuller_base
from atoll.server.e2b.template_views import entry, status_of
from atoll.server.e2b.template_wire import NewBuild, Upload
from atoll.server.settings import Settings
from atoll.types import BuildInfo

_ENTRIES_MOST = 100
_BUILD = "/templates/{template_id}/builds/{build_id}"
_LEVELS = ("debug", "info", "warn", "error")


def build_routes(teams: TeamRoutes, settings: Settings, builds: Builds, uploads: Uploads) -> Sequence[Route]:
    """Return all routes for builds."""
    return [
        *_upload_routes(teams, settings.scheme, uploads),
        *_work_routes(teams, settings.images, builds, uploads),
        *_look_routes(teams, builds),
    ]


def _upload_routes(teams: TeamRoutes, scheme: str, uploads: Uploads) -> Sequence[Route]:
    async def where(request: TeamRequest) -> Response:
        team, digest = request.team.name, request.http.path_params["digest"]
        ref = own_ref(request.http.path_params["template_id"], team)
        await AsyncTemplates.get(ref, team=team)
        base = f"{scheme}://{request.http.url.netloc}"
        url = f"{base}/uploads/{digest}?{uploads.query(team, digest)}"
        return answer(Upload(present=uploads.has(team, digest), url=url), 201)

    async def take(request: Request) -> Response:
        await uploads.take(request.path_params["digest"], dict(request.query_params), pieces_of(request))
        return Response(status_code=200)

    return [
        plain_route(teams, "GET", "/templates/{template_id}/files/{digest}", where),
        Route("/uploads/{digest}", take, methods=["PUT"]),
    ]


async def _build(request: TeamRequest) -> BuildInfo:
    """Return the team's build that the path names."""
    team, build_id = request.team.name, str(request.http.path_params["build_id"])
    info = await AsyncTemplates.get(own_ref(request.http.path_params["template_id"], team), team=team)
    for build in info.builds:
        if build.build_id == build_id and info.team == team:
            return build
    raise Refusal(404, f"build '{build_id[:64]}' not found")


def _work_routes(
    teams: TeamRoutes, images: Mapping[str, str], builds: Builds, uploads: Uploads
) -> Sequence[Route]:
    async def begin(request: TeamRequest) -> Response:
        build, wanted = await _build(request), await request.body(NewBuild)
        team = request.team.name
        spec = await with_fuller_base(spec_of(wanted, build.limits, images), team)
        archives = {digest: uploads.path(team, digest) for digest in archives_of(spec)}
        await builds.begin(build.build_id, spec, team, archives)
        return Response(status_code=202)

    return [plain_route(teams, "POST", f"/v2{_BUILD}", begin)]


def _look_routes(teams: TeamRoutes, builds: Builds) -> Sequence[Route]:
    async def status(request: TeamRequest) -> Response:
        build = await _build(request)
        # the lines are read after the state, so that a client that sees the end also sees every line before
        # it
        lines = await builds.lines(build.build_id)
        level = request.query.get("level", "debug")
        if level not in _LEVELS:
            raise Refusal(400, "level is debug, info, warn or error")
        shown = [line for line in lines if _LEVELS.index(line.level) >= _LEVELS.index(level)]
        offset = _number(request.query, "logsOffset", 0, 1 << 31)
        limit = _number(request.query, "limit", _ENTRIES_MOST, _ENTRIES_MOST)
        return answer(status_of(build, shown[offset : offset + limit], lines))

    async def logs(request: TeamRequest) -> Response:
        build = await _build(request)
        lines = await builds.lines(build.build_id)
        offset = _number(request.query, "cursor", 0, 1 << 31)
        limit = _number(request.query, "limit", _ENTRIES_MOST, _ENTRIES_MOST)
        return answer({"logs": [entry(line) for line in lines[offset : offset + limit]]})

    return [
        plain_route(teams, "GET", f"{_BUILD}/status", status),
        plain_route(teams, "GET", f"{_BUILD}/logs", logs),
    ]


def _number(request: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = request.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Refusal(400, f"{name} must be a number")
    return min(int(text), most)
