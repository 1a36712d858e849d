"""Routes of the files of volumes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.errors import InvalidSpecError
from atoll.host import Owner
from atoll.protocol import AttributesRequest
from atoll.supervisor.api.reply import Report, answer, json_answer, read_body
from atoll.supervisor.own_exit import Keeper
from atoll.supervisor.state.rows import VolumeRow
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.volume_files import VolumeFiles
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.supervisor.tenants.volume_quotas import VolumeQuotas

_ONE = "/v1/volumes/{ref}"
_DIGITS_MOST = 10
_CHECK_BYTES = 64 << 20


def volume_file_routes(
    *, volumes: Volumes, volume_quotas: VolumeQuotas, quotas: TeamQuotas, keeper: Keeper, tasks: Tasks
) -> list[Route]:
    """Everything under ``/v1/volumes/REF``: entries, directories and the contents of files."""
    return [
        *_entry_routes(volumes, volume_quotas, tasks),
        *_directory_routes(volumes, volume_quotas, tasks),
        *_file_routes(volumes, volume_quotas, quotas, keeper),
    ]


def _entry_routes(volumes: Volumes, volume_quotas: VolumeQuotas, tasks: Tasks) -> list[Route]:
    async def stat(request: Request) -> Response:
        return json_answer(await _files(volumes, request).stat(_path(request)))

    async def set_attributes(request: Request) -> Response:
        files, wanted = _files(volumes, request), await read_body(request, AttributesRequest)

        async def work(_: Report) -> object:
            owner = Owner(wanted.uid, wanted.gid)
            return await files.set_attributes(_path(request), mode=wanted.mode, owner=owner)

        return await answer(request, tasks, work)

    async def delete(request: Request) -> Response:
        row = _volume(volumes, request)

        async def work(_: Report) -> None:
            try:
                await volumes.files(row).remove(_path(request))
            finally:
                volume_quotas.changed(row.volume_id)

        return await answer(request, tasks, work)

    return [
        Route(f"{_ONE}/entry", stat),
        Route(f"{_ONE}/entry", set_attributes, methods=["POST"]),
        Route(f"{_ONE}/entry", delete, methods=["DELETE"]),
    ]


def _directory_routes(volumes: Volumes, volume_quotas: VolumeQuotas, tasks: Tasks) -> list[Route]:
    async def listed(request: Request) -> Response:
        depth = _number(request, "depth")
        return json_answer(await _files(volumes, request).list(_path(request), 1 if depth is None else depth))

    async def make(request: Request) -> Response:
        row = _volume(volumes, request)

        async def work(_: Report) -> object:
            await volume_quotas.check(row)
            return await volumes.files(row).mkdir(
                _path(request),
                parents=bool(_number(request, "parents")),
                mode=_number(request, "mode"),
                owner=_owner(request),
            )

        return await answer(request, tasks, work)

    return [Route(f"{_ONE}/dir", listed), Route(f"{_ONE}/dir", make, methods=["POST"])]


def _file_routes(
    volumes: Volumes, volume_quotas: VolumeQuotas, quotas: TeamQuotas, keeper: Keeper
) -> list[Route]:
    async def read(request: Request) -> Response:
        pieces = _files(volumes, request).read(_path(request))
        # A file that cannot be read is reported before the answer begins.
        first = await anext(pieces, b"")
        return StreamingResponse(_joined(keeper, first, pieces), media_type="application/octet-stream")

    async def write(request: Request) -> Response:
        # No task of its own does this: if a client stops sending, nothing is written.
        row = _volume(volumes, request)
        try:
            entry = await volumes.files(row).write(
                _path(request),
                volume_quotas.within(row, _allowed(quotas, keeper, row.team, request.stream())),
                parents=bool(_number(request, "parents")),
                replace=bool(_number(request, "replace")),
                mode=_number(request, "mode"),
                owner=_owner(request),
            )
        except ClientDisconnect:
            raise InvalidSpecError("the client sent only a part of the file") from None
        volume_quotas.added(row.volume_id)
        return json_answer(entry)

    return [Route(f"{_ONE}/file", read), Route(f"{_ONE}/file", write, methods=["PUT"])]


async def _allowed(
    quotas: TeamQuotas, keeper: Keeper, team: str | None, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The uploaded pieces, as long as the team has disk quota left. Meanwhile the supervisor is not idle."""
    unchecked = _CHECK_BYTES
    async for piece in pieces:
        unchecked += len(piece)
        if unchecked >= _CHECK_BYTES:
            await quotas.check_disk(team)
            unchecked = 0
        keeper.note()
        yield piece


async def _joined(keeper: Keeper, first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        keeper.note()
        yield piece


def _files(volumes: Volumes, request: Request) -> VolumeFiles:
    return volumes.files(_volume(volumes, request))


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


def _volume(volumes: Volumes, request: Request) -> VolumeRow:
    return volumes.get(request.path_params["ref"], request.query_params.get("team"))
