"""Templates: asking for builds, lists, names and tags."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import InvalidSpecError, QuotaError, StateError, TemplateNotFoundError
from atoll.sdk import AsyncTemplates, for_servers
from atoll.server.api.team_request import Endpoint, TeamRequest, TeamRoutes
from atoll.server.builds.builds import Builds
from atoll.server.e2b.answers import Refusal, answer, no_content
from atoll.server.e2b.template_pages import page_of
from atoll.server.e2b.template_source import missing_tag
from atoll.server.e2b.template_views import TemplateViews, tags_of
from atoll.server.e2b.template_wire import Alias, AssignedTags, NewTags, NewTemplate, Published
from atoll.types import Limits
from atoll.types.internal import DEFAULT_TAG

_ONE = "/templates/{ref:path}"
# a name with an optional team and tag, or an id
_REF = re.compile(r"[A-Za-z0-9_.:/@-]{1,256}")


def template_routes(teams: TeamRoutes, views: TemplateViews, builds: Builds) -> Sequence[Route]:
    """Return all routes under ``/templates`` except builds."""
    return [
        *_tag_routes(teams),
        *_name_routes(teams),
        *_list_routes(teams, views),
        *_one_routes(teams, views, builds),
    ]


def plainly(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint so that its refusals use the words of E2B's clients, and name no local commands."""

    async def told(request: TeamRequest) -> Response:
        try:
            return await endpoint(request)
        except TemplateNotFoundError as error:
            raise Refusal(404, error.message) from None
        except (InvalidSpecError, StateError) as error:
            raise Refusal(400, error.message) from None
        except QuotaError as error:
            raise Refusal(429, error.message, headers={"Should-Retry": "false"}) from None

    return told


def plain_route(
    teams: TeamRoutes, method: str, path: str, endpoint: Callable[[TeamRequest], Awaitable[Response]]
) -> Route:
    """Make a route whose endpoint is wrapped by ``plainly``."""
    return teams.route(method, path, plainly(endpoint))


def own_ref(text: str, team: str) -> str:
    """Return a template as a client writes it, without the team's own name before it.

    Raises:
        Refusal: No template can have that name (400).
    """
    name = text.strip().removeprefix(f"{team}/")
    if not _REF.fullmatch(name) or name.startswith(":") or name.endswith(":"):
        raise Refusal(400, f"Invalid template name: {text[:64]}")
    return name


def _name_routes(teams: TeamRoutes) -> Sequence[Route]:
    async def alias(request: TeamRequest) -> Response:
        ref = own_ref(request.http.path_params["alias"], request.team.name)
        name = ref.partition(":")[0]
        info = await AsyncTemplates.get(name, team=request.team.name)
        return answer(Alias(template_id=info.template_id, public=info.public))

    return [plain_route(teams, "GET", "/templates/aliases/{alias:path}", alias)]


def _tag_routes(teams: TeamRoutes) -> Sequence[Route]:
    async def assign(request: TeamRequest) -> Response:
        wanted, team = await request.body(NewTags), request.team.name
        build = await AsyncTemplates.tag(own_ref(wanted.target or "", team), wanted.tags, team=team)
        return answer(AssignedTags(tags=build.tags, build_id=build.build_id), 201)

    async def remove(request: TeamRequest) -> Response:
        wanted, team = await request.body(NewTags), request.team.name
        await AsyncTemplates.untag(own_ref(wanted.name or "", team), wanted.tags, team=team)
        return no_content()

    async def listed(request: TeamRequest) -> Response:
        team = request.team.name
        info = await AsyncTemplates.get(own_ref(request.http.path_params["ref"], team), team=team)
        if info.team != team:
            raise Refusal(404, f"template '{info.template_id}' not found")
        return answer(tags_of(info))

    return [
        plain_route(teams, "POST", "/templates/tags", assign),
        plain_route(teams, "DELETE", "/templates/tags", remove),
        plain_route(teams, "GET", f"{_ONE}/tags", listed),
    ]


def _list_routes(teams: TeamRoutes, views: TemplateViews) -> Sequence[Route]:
    async def create(request: TeamRequest) -> Response:
        wanted, team = await request.body(NewTemplate), request.team.name
        name = wanted.name or wanted.alias
        if not name:
            raise Refusal(400, "Name is required")
        limits = Limits(vcpus=wanted.cpu_count, memory_mib=wanted.memory_mb).check()
        build = await for_servers.request_build(
            own_ref(name, team), team=team, tags=wanted.tags or [], limits=limits
        )
        info = await AsyncTemplates.get(build.template_id, team=team)
        return answer(views.requested(info, build), 202)

    async def list_v1(request: TeamRequest) -> Response:
        infos = await AsyncTemplates.list(team=request.team.name)
        return answer([views.listed(info) for info in infos])

    async def list_v2(request: TeamRequest) -> Response:
        infos, token = page_of(await AsyncTemplates.list(team=request.team.name), request.query)
        headers = {"X-Next-Token": token} if token else None
        return answer([views.listed(info) for info in infos], headers=headers)

    return [
        plain_route(teams, "POST", "/v3/templates", create),
        plain_route(teams, "GET", "/templates", list_v1),
        plain_route(teams, "GET", "/v2/templates", list_v2),
    ]


def _one_routes(teams: TeamRoutes, views: TemplateViews, builds: Builds) -> Sequence[Route]:
    async def look(request: TeamRequest) -> Response:
        team = request.team.name
        info = await AsyncTemplates.get(own_ref(request.http.path_params["ref"], team), team=team)
        if info.team != team:
            raise Refusal(404, f"template '{info.template_id}' not found")
        return answer(views.detail(info))

    async def change(request: TeamRequest) -> Response:
        wanted, team = await request.body(Published), request.team.name
        ref = own_ref(request.http.path_params["ref"], team)
        if wanted.public is not None:
            await AsyncTemplates.publish(ref, wanted.public, team=team)
        info = await AsyncTemplates.get(ref, team=team)
        return answer({"names": views.detail(info).names})

    async def remove(request: TeamRequest) -> Response:
        team = request.team.name
        name, _, tag = own_ref(request.http.path_params["ref"], team).partition(":")
        info = await AsyncTemplates.get(name, team=team)
        if tag and tag != DEFAULT_TAG and set(info.tags) != {tag}:
            if tag not in info.tags:
                raise missing_tag(name, tag)
            await AsyncTemplates.untag(name, [tag], team=team)
            return no_content()
        await AsyncTemplates.delete(name, team=team)
        await builds.forget({build.build_id for build in info.builds})
        return no_content()

    return [
        plain_route(teams, "PATCH", f"/v2{_ONE}", change),
        plain_route(teams, "PATCH", _ONE, change),
        plain_route(teams, "GET", _ONE, look),
        plain_route(teams, "DELETE", _ONE, remove),
    ]
