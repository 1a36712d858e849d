"""Builds the API's answers: JSON, errors with their status, and streams of progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from atoll import errors
from atoll.errors import AtollError, InvalidSpecError
from atoll.protocol import ErrorBody, StreamLine, error_body, ours
from atoll.supervisor.state.tasks import Tasks
from atoll.types import Progress
from atoll.types.internal import from_json

_T = TypeVar("_T")
NDJSON = "application/x-ndjson"
_BODY_LIMIT_BYTES = 4 << 20
_log = logging.getLogger(__name__)

# The first class that matches decides.
_STATUS: tuple[tuple[type[AtollError], int], ...] = (
    (errors.InvalidSpecError, 400),
    (errors.DeniedError, 401),
    (errors.DelegationError, 403),
    (errors.NotFoundError, 404),
    (errors.NameTakenError, 409),
    (errors.InUseError, 409),
    (errors.DrainingError, 503),
    (errors.StateError, 409),
    (errors.FileMissingError, 404),
    (errors.FileTakenError, 409),
    (errors.FileError, 400),
    (errors.SandboxCrashedError, 410),
    (errors.QuotaError, 429),
    (errors.UnsupportedError, 501),
    (errors.DeadlineError, 504),
    (errors.NoSpaceError, 507),
    (errors.HostMemoryError, 503),
    (errors.ShortageError, 503),
)


def status_of(error: BaseException) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def json_answer(value: object, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_answer(error: BaseException) -> Response:
    """The answer for an error. An unexpected error is logged with its traceback."""
    return json_answer(_told(error), status_of(ours(error)))


def _told(error: BaseException) -> ErrorBody:
    told = ours(error)
    if not isinstance(told, AtollError):
        _log.error("a request failed", exc_info=error)
    elif isinstance(told, errors.ShortageError):
        _log.warning("a request failed, because %s", told.message, exc_info=error)
    return error_body(error)


async def read_body(request: Request, kind: type[_T]) -> _T:
    """The request's body as a value. Without a body, every field has its default.

    Raises:
        InvalidSpecError: The body is not a value of this kind.
    """
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > _BODY_LIMIT_BYTES:
                raise InvalidSpecError("the request is over 4 MiB")
    except ClientDisconnect:  # nobody gets the answer, and it is not the supervisor's fault
        raise InvalidSpecError("the request ended too early") from None
    try:
        return from_json(bytes(data) or b"{}", kind)
    except msgspec.DecodeError as error:
        raise InvalidSpecError(f"the request's body is invalid: {error}", hint="see /docs") from None


Report = Callable[[Progress], None]


async def answer(
    request: Request,
    tasks: Tasks,
    work: Callable[[Report], Coroutine[Any, Any, object]],
    *,
    ends_with_client: bool = False,
) -> Response:
    """Do the work and answer with its result, as a stream with progress if the client asks for that.

    The audit log tells of it, unless it is a question.

    Args:
        ends_with_client: Whether work with progress is cancelled when the client leaves.
    """
    work = request.app.state.acts.noted(request, work)
    if NDJSON in request.headers.get("accept", ""):
        return StreamingResponse(_lines(tasks, work, ends_with_client), media_type=NDJSON)
    try:
        result = await tasks.run(work(lambda _: None))
    except Exception as error:  # every failure is an answer
        return error_answer(error)
    return Response(status_code=204) if result is None else json_answer(result)


async def _lines(
    tasks: Tasks, work: Callable[[Report], Coroutine[Any, Any, object]], ends_with_client: bool
) -> AsyncIterator[bytes]:
    reports: asyncio.Queue[Progress | None] = asyncio.Queue()
    task = tasks.spawn(work(reports.put_nowait))
    task.add_done_callback(lambda _: reports.put_nowait(None))
    try:
        while (progress := await reports.get()) is not None:
            yield _line(StreamLine(progress=progress))
    finally:
        if ends_with_client:
            task.cancel()  # does nothing if the task is done
    try:
        result = await asyncio.shield(task)
    except Exception as error:  # every failure is an answer
        yield _line(StreamLine(error=_told(error)))
    else:
        yield _line(StreamLine(result=msgspec.Raw(msgspec.json.encode(result))))


def _line(line: StreamLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"
