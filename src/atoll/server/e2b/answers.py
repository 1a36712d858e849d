"""Answers to clients: bodies as JSON, and errors in the form that E2B's clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from atoll import errors
from atoll.errors import AtollError
from atoll.types.internal import from_json

_Value = TypeVar("_Value")
BODY_BYTES = 1 << 20
_STATUS: dict[type[AtollError], int] = {
    errors.InvalidSpecError: 400,
    errors.DeniedError: 401,
    errors.DelegationError: 403,
    errors.QuotaError: 429,
    errors.NotFoundError: 404,
    errors.NameTakenError: 409,
    errors.InUseError: 409,
    errors.DrainingError: 503,
    errors.StateError: 409,
    # not 409: to a client that pauses, 409 would mean that the sandbox already sleeps
    errors.SandboxCrashedError: 410,
    errors.UnsupportedError: 501,
    errors.NoSpaceError: 507,
    errors.HostMemoryError: 503,
    errors.DeadlineError: 504,
    errors.ImageBuildError: 400,
    errors.ImagePullError: 400,
    errors.SupervisorError: 503,
    errors.FileMissingError: 404,
    errors.FileTakenError: 409,
    errors.NotADirectoryInSandboxError: 400,
    errors.IsADirectoryInSandboxError: 400,
    errors.FileDeniedError: 403,
}

# The messages of these errors name paths of this host.
_OPAQUE: dict[type[AtollError], str] = {
    errors.DeadlineError: "the server got no answer in time; its log has the details",
    errors.SupervisorError: "the supervisor cannot be reached; the server's log says why",
}
# An immediate retry does not help: a team gets no more than before, and a slow operation may still have
# finished.
_FINAL = (errors.QuotaError, errors.DeadlineError)


class Refusal(Exception):
    """Answers a request with an error.

    Args:
        status: The HTTP status, which is also the body's ``code``.
        message: A text for people, which E2B's clients show.
        error_code: A code for programs, if E2B has one.
        headers: Further headers, like ``Retry-After``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        error_code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error_code = error_code
        self.headers = dict(headers or {})


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``value`` as JSON."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")


def no_content() -> Response:
    """Return an empty success."""
    return Response(status_code=204)


def refused(refusal: Refusal) -> Response:
    """Return the answer for a refusal."""
    body: dict[str, object] = {"code": refusal.status, "message": refusal.message}
    if refusal.error_code is not None:
        body["error_code"] = refusal.error_code
    return answer(body, refusal.status, refusal.headers)


def refusal_of(error: AtollError) -> Refusal:
    """Return the refusal that tells a client on another machine about an error."""
    for kind in type(error).__mro__:
        status = _STATUS.get(kind)
        if status is not None:
            final = {"Should-Retry": "false"} if kind in _FINAL else None
            return Refusal(status, _OPAQUE.get(kind) or error.told_to("e2b"), headers=final)
    # the message may name paths and programs of this host
    return Refusal(500, "the server failed; its log says why")


async def read_body(request: Request, *, limit_bytes: int = BODY_BYTES) -> bytes:
    """Read the body of a request, chunked or not.

    Raises:
        Refusal: The body is too long (413), or ends early (400).
    """
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > limit_bytes:
                # the rest of the body is not read, so no further request can follow on the connection
                headers = {"Connection": "close"}
                raise Refusal(413, f"the body has more than {limit_bytes} bytes", headers=headers)
    except ClientDisconnect:
        raise Refusal(400, "the body ended early") from None
    return bytes(data)


async def read_json(request: Request, kind: type[_Value], *, limit_bytes: int = BODY_BYTES) -> _Value:
    """Read the body of a request, chunked or not, as ``kind``. A missing body counts as an empty object.

    Raises:
        Refusal: The body is too long (413) or invalid (400).
    """
    data = await read_body(request, limit_bytes=limit_bytes)
    try:
        return from_json(data or b"{}", kind)
    except msgspec.DecodeError as error:
        raise Refusal(400, f"the body is invalid: {error}") from None
