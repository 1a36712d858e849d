"""Routes of volumes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.errors import InvalidSpecError
from atoll.host import Owner
from atoll.protocol import AttributesRequest, VolumeRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.state.rows import VolumeRow
from atoll.supervisor.storage.volume_files import VolumeFiles
from atoll.supervisor.system import System

_BASE = "/v1/volumes"
_ONE = f"{_BASE}/{{ref}}"
_DIGITS_MOST = 10
_CHECK_BYTES = 64 << 20


def volume_routes(system: System) -> list[Route]:
    """Everything under ``/v1/volumes``."""

    async def create(request: Request) -> Response:
        wanted = await read_body(request, VolumeRequest)

        async def work(_: Report) -> object:
            with system.quotas.owning(wanted.team):
                return (await system.volumes.create(wanted.name, wanted.team)).info()

        return await answer(request, system.tasks, work)

    async def listed(request: Request) -> Response:
        return json_answer([row.info() for row in system.volumes.list(request.query_params.get("team"))])

    async def info(request: Request) -> Response:
        return json_answer(_volume(system, request).info())

    async def remove(request: Request) -> Response:
        row = _volume(system, request)

        async def work(_: Report) -> None:
            await system.volumes.delete(row.volume_id)

        return await answer(request, system.tasks, work)

    return [
        Route(_BASE, create, methods=["POST"]),
        Route(_BASE, listed),
        Route(_ONE, info),
        Route(_ONE, remove, methods=["DELETE"]),
        *_entry_routes(system),
        *_directory_routes(system),
        *_file_routes(system),
    ]


def _entry_routes(system: System) -> list[Route]:
    async def stat(request: Request) -> Response:
        return json_answer(await _files(system, request).stat(_path(request)))

    async def set_attributes(request: Request) -> Response:
        files, wanted = _files(system, request), await read_body(request, AttributesRequest)

        async def work(_: Report) -> object:
            owner = Owner(wanted.uid, wanted.gid)
            return await files.set_attributes(_path(request), mode=wanted.mode, owner=owner)

        return await answer(request, system.tasks, work)

    async def remove(request: Request) -> Response:
        files = _files(system, request)

        async def work(_: Report) -> None:
            await files.remove(_path(request))

        return await answer(request, system.tasks, work)

    return [
        Route(f"{_ONE}/entry", stat),
        Route(f"{_ONE}/entry", set_attributes, methods=["POST"]),
        Route(f"{_ONE}/entry", remove, methods=["DELETE"]),
    ]


def _directory_routes(system: System) -> list[Route]:
    async def listed(request: Request) -> Response:
        depth = _number(request, "depth")
        return json_answer(await _files(system, request).list(_path(request), 1 if depth is None else depth))

    async def make(request: Request) -> Response:
        files = _files(system, request)

        async def work(_: Report) -> object:
            return await files.mkdir(
                _path(request),
                parents=bool(_number(request, "parents")),
                mode=_number(request, "mode"),
                owner=_owner(request),
            )

        return await answer(request, system.tasks, work)

    return [Route(f"{_ONE}/dir", listed), Route(f"{_ONE}/dir", make, methods=["POST"])]


def _file_routes(system: System) -> list[Route]:
    async def read(request: Request) -> Response:
        pieces = _files(system, request).read(_path(request))
        # A file that cannot be read is reported before the answer begins.
        first = await anext(pieces, b"")
        return StreamingResponse(_joined(system, first, pieces), media_type="application/octet-stream")

    async def write(request: Request) -> Response:
        # Not a task of its own: if a client stops sending, nothing is written.
        try:
            entry = await _files(system, request).write(
                _path(request),
                _allowed(system, _volume(system, request).team, request.stream()),
                parents=bool(_number(request, "parents")),
                replace=bool(_number(request, "replace")),
                mode=_number(request, "mode"),
                owner=_owner(request),
            )
        except ClientDisconnect:
            raise InvalidSpecError("the file was not sent to its end") from None
        return json_answer(entry)

    return [Route(f"{_ONE}/file", read), Route(f"{_ONE}/file", write, methods=["PUT"])]


async def _allowed(system: System, team: str | None, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The uploaded pieces, as long as the team has disk quota left. Meanwhile the supervisor is not idle."""
    unchecked = _CHECK_BYTES
    async for piece in pieces:
        unchecked += len(piece)
        if unchecked >= _CHECK_BYTES:
            await system.quotas.check_disk(team)
            unchecked = 0
        system.keeper.note()
        yield piece


async def _joined(system: System, first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        system.keeper.note()
        yield piece


def _files(system: System, request: Request) -> VolumeFiles:
    return system.volumes.files(_volume(system, request))


def _path(request: Request) -> str:
    return request.query_params.get("path", "/")


def _owner(request: Request) -> Owner:
    return Owner(_number(request, "uid"), _number(request, "gid"))


def _number(request: Request, name: str) -> int | None:
    """A number from the query; None if the parameter is missing.

    Raises:
        InvalidSpecError: The value is not a number.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MOST:
        hint = f"give a whole number without a sign, of {_DIGITS_MOST} digits at most"
        raise InvalidSpecError(f"{name} is {text[:80]}", hint=hint)
    return int(text)


def _volume(system: System, request: Request) -> VolumeRow:
    return system.volumes.get(request.path_params["ref"], request.query_params.get("team"))
