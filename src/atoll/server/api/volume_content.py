"""Files of volumes, for clients with the volume's token. No key is needed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.errors import AtollError, FileError
from atoll.sdk import AsyncVolumeFiles, AsyncVolumes
from atoll.server.auth.access import Access
from atoll.server.e2b.answers import Refusal, answer, no_content, read_json, refusal_of
from atoll.server.e2b.listing import number_of
from atoll.server.e2b.views import moment
from atoll.server.tokens import Tokens, bearer, same
from atoll.types import VolumeEntry

_NUMBER_MOST = 0xFFFFFFFE
_MODE_MOST = 0o7777
_DEPTH_MOST = 64
_PATH_MOST = 4096
_Number = Annotated[int, Meta(ge=0, le=_NUMBER_MOST)]
_KINDS: dict[str, Literal["file", "directory", "symlink"]] = {
    "file": "file",
    "directory": "directory",
    "symlink": "symlink",
}


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``PATCH …/path``: the attributes to change."""

    uid: _Number | None = None
    gid: _Number | None = None
    mode: Annotated[int, Meta(ge=0, le=_MODE_MOST)] | None = None


class _Fault(msgspec.Struct, frozen=True, kw_only=True):
    """An error, whose code is a word here."""

    code: str
    message: str


_Endpoint = Callable[[Request, AsyncVolumeFiles], Awaitable[Response]]


def volume_content_routes(tokens: Tokens, access: Access) -> Sequence[Route]:
    """Return the routes of ``/volumecontent``."""

    def route(method: str, kind: str, endpoint: _Endpoint) -> Route:
        async def guarded(request: Request) -> Response:
            volume_id = str(request.path_params["volume_id"])
            if not same(bearer(request.headers) or "", tokens.volume(volume_id)):
                return _fault("unauthorized", Refusal(401, "Invalid volume token"))
            try:
                await access.team_of_volume(volume_id)
                return await endpoint(request, AsyncVolumes.files(volume_id))
            except Refusal as refusal:
                return _fault("quota" if refusal.status == 429 else "invalid_request", refusal)
            except AtollError as error:
                return _fault(error.code, _refusal(error))

        return Route(f"/volumecontent/{{volume_id}}/{kind}", guarded, methods=[method])

    return [
        route("GET", "path", _stat),
        route("PATCH", "path", _set_attributes),
        route("DELETE", "path", _remove),
        route("GET", "dir", _list),
        route("POST", "dir", _make),
        route("GET", "file", _read),
        route("PUT", "file", _write),
    ]


def _refusal(error: AtollError) -> Refusal:
    return Refusal(400, error.message) if type(error) is FileError else refusal_of(error)


def _fault(code: str, refusal: Refusal) -> Response:
    return answer(_Fault(code=code, message=refusal.message), refusal.status, refusal.headers)


async def _stat(request: Request, files: AsyncVolumeFiles) -> Response:
    return answer(_told(await files.stat(_path(request))))


async def _set_attributes(request: Request, files: AsyncVolumeFiles) -> Response:
    wanted = await read_json(request, Attributes)
    entry = await files.set_attributes(_path(request), mode=wanted.mode, uid=wanted.uid, gid=wanted.gid)
    return answer(_told(entry))


async def _remove(request: Request, files: AsyncVolumeFiles) -> Response:
    await files.delete(_path(request))
    return no_content()


async def _list(request: Request, files: AsyncVolumeFiles) -> Response:
    depth = number_of(request.query_params, "depth", 1, least=1, most=_DEPTH_MOST)
    return answer([_told(entry) for entry in await files.list(_path(request), depth=depth)])


async def _make(request: Request, files: AsyncVolumeFiles) -> Response:
    entry = await files.mkdir(
        _path(request),
        parents=_is_forced(request) is True,
        mode=_optional(request, "mode", _MODE_MOST),
        uid=_optional(request, "uid", _NUMBER_MOST),
        gid=_optional(request, "gid", _NUMBER_MOST),
    )
    return answer(_told(entry), 201)


async def _read(request: Request, files: AsyncVolumeFiles) -> Response:
    pieces = files.read_stream(_path(request))
    # An unreadable file is reported before the answer begins.
    first = await anext(pieces, b"")
    return StreamingResponse(_joined(first, pieces), media_type="application/octet-stream")


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(rest):  # type: ignore[type-var]
        yield first
        async for piece in rest:
            yield piece


async def _write(request: Request, files: AsyncVolumeFiles) -> Response:
    # Only an explicit no keeps the old file. Without the parameter, the file is replaced.
    forced = _is_forced(request) is not False
    try:
        entry = await files.write(
            _path(request),
            request.stream(),
            parents=forced,
            replace=forced,
            mode=_optional(request, "mode", _MODE_MOST),
            uid=_optional(request, "uid", _NUMBER_MOST),
            gid=_optional(request, "gid", _NUMBER_MOST),
        )
    except ClientDisconnect:
        raise Refusal(400, "the body ended early") from None
    return answer(_told(entry), 201)


def _path(request: Request) -> str:
    path = request.query_params.get("path")
    if not path or len(path) > _PATH_MOST:
        raise Refusal(400, "path must be a path in the volume")
    return path


def _is_forced(request: Request) -> bool | None:
    given = request.query_params.get("force", "").lower()
    if given not in ("", "true", "false"):
        raise Refusal(400, "force must be true or false")
    return given == "true" if given else None


def _optional(request: Request, name: str, most: int) -> int | None:
    if not request.query_params.get(name):
        return None
    return number_of(request.query_params, name, 0, most=most)


def _told(entry: VolumeEntry) -> dict[str, object]:
    told: dict[str, object] = {
        "name": entry.name,
        "type": _KINDS.get(entry.kind, "unknown"),
        "path": entry.path,
        "size": entry.size_bytes,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": moment(entry.accessed_at),
        "mtime": moment(entry.modified_at),
        "ctime": moment(entry.changed_at),
    }
    return told if entry.target is None else told | {"target": entry.target}
