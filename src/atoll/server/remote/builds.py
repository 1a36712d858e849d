"""Builds of the remote SDK: the client sends the definition and the files, and the server carries the build out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import AtollError, InvalidSpecError, TemplateBuildError
from atoll.host import Home
from atoll.protocol import BuildNews, BuildRun
from atoll.sdk import AsyncTemplates
from atoll.server.auth.access import Access
from atoll.server.builds.builds import Begun, Builds
from atoll.server.builds.uploads import Uploads, pieces_of
from atoll.server.e2b.answers import read_body
from atoll.server.remote.answering import answering, told
from atoll.server.remote.asked import Asked
from atoll.server.remote.build_specs import BUILD_MOST_S, build_spec, uploads_of
from atoll.server.remote.streaming import StreamedAnswer
from atoll.server.settings import Settings
from atoll.types import BuildInfo, BuildLine
from atoll.types.internal import as_json

# The build waits while this many lines are unsent.
_LINES_AHEAD = 1000
_BEAT_S = 20.0


def build_routes(
    prefix: str, settings: Settings, access: Access, builds: Builds, uploads: Uploads
) -> Sequence[Route]:
    """Return the routes that the server has itself, and does not pass on to the supervisor."""

    async def has(request: Request) -> Response:
        team = await access.team_of(request.headers)
        return _json(uploads.has(team.name, request.path_params["digest"]))

    async def take(request: Request) -> Response:
        team = await access.team_of(request.headers)
        await uploads.store(team.name, request.path_params["digest"], pieces_of(request))
        return _json(True)

    async def run(request: Request) -> Response:
        team = await access.team_of(request.headers)
        asked = Asked(team, {}, {}, await read_body(request))
        build, wanted = await asked.build(request.path_params["id"]), asked.read(BuildRun)
        if not 0 < wanted.timeout_s <= BUILD_MOST_S:
            raise InvalidSpecError(
                f"timeout_s is {wanted.timeout_s:g}", hint=f"give at most {BUILD_MOST_S:g} seconds"
            )
        spec = build_spec(wanted.spec, build.limits, settings.images)
        archives = {digest: uploads.path(team.name, digest) for digest in uploads_of(spec)}
        lines: asyncio.Queue[BuildLine] = asyncio.Queue(_LINES_AHEAD)
        begun = await builds.begin(
            build.build_id, spec, team.name, archives, timeout_s=wanted.timeout_s, on_line=lines.put
        )
        return _Followed(begun, lines)

    async def remove(request: Request) -> Response:
        team, ref = await access.team_of(request.headers), request.path_params["ref"]
        info = await AsyncTemplates.get(ref, team=team.name)
        await AsyncTemplates.delete(ref, team=team.name)
        await builds.forget({build.build_id for build in info.builds})
        return Response(status_code=204)

    return [
        Route(f"{prefix}/uploads/{{digest}}", answering(has)),
        Route(f"{prefix}/uploads/{{digest}}", answering(take), methods=["PUT"]),
        Route(f"{prefix}/builds/{{id}}/run", answering(run), methods=["POST"]),
        Route(f"{prefix}/templates/{{ref:path}}", answering(remove), methods=["DELETE"]),
    ]


class _Followed(StreamedAnswer):
    """Tells a client how its build goes. A client that leaves cancels the build.

    Args:
        begun: The build.
        lines: The lines of its log.
    """

    def __init__(self, begun: Begun, lines: asyncio.Queue[BuildLine]) -> None:
        super().__init__(200, [(b"content-type", b"application/x-ndjson")])
        self._begun = begun
        self._lines = lines

    def end(self) -> None:
        self._begun.task.cancel()

    async def pieces(self) -> AsyncIterator[bytes]:
        home = str(Home.default().path).encode()
        async for news in self._news():
            yield b"\n" if news is None else as_json(news).replace(home, b"HOME") + b"\n"

    async def _news(self) -> AsyncIterator[BuildNews | None]:
        """Iterate over the news. None is a sign of life, for clients to know that the server is there."""
        task = self._begun.task
        yield BuildNews(build=self._begun.build)
        while not task.done() or not self._lines.empty():
            line = asyncio.ensure_future(self._lines.get())
            try:
                await asyncio.wait({line, task}, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if line.done():
                    yield BuildNews(line=line.result())
                elif not task.done():
                    yield None
            finally:
                line.cancel()
        yield _outcome(task)


def _outcome(task: asyncio.Task[BuildInfo | Exception]) -> BuildNews:
    outcome = TemplateBuildError("the build was cancelled") if task.cancelled() else task.result()
    if isinstance(outcome, BuildInfo):
        return BuildNews(build=outcome)
    if not isinstance(outcome, AtollError):
        outcome = TemplateBuildError("the build failed", hint="the server's log says why")
    return BuildNews(error=told(outcome))


def _json(value: object) -> Response:
    return Response(as_json(value), media_type="application/json")
