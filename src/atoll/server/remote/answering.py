"""Errors as the remote SDK reads them: those of a supervisor, without the paths of this host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.errors import AtollError, DeniedError, InvalidSpecError, QuotaError
from atoll.host import Home
from atoll.protocol import ErrorBody, error_body, ours
from atoll.server.e2b.answers import Refusal, refusal_of
from atoll.types.internal import as_json

Endpoint = Callable[[Request], Awaitable[Response]]
_KINDS: dict[int, type[AtollError]] = {
    400: InvalidSpecError,
    413: InvalidSpecError,
    429: QuotaError,
    503: QuotaError,
}


def answering(endpoint: Endpoint) -> Endpoint:
    """Answer errors as the supervisor does, since the client is the SDK that talks to supervisors."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refusal as refusal:
            return _failed(error_body(_as_error(refusal)), refusal.status, refusal.headers)
        except (AtollError, OSError) as error:
            known = ours(error)
            if not isinstance(known, AtollError):
                raise
            return _failed(told(known), refusal_of(known).status)

    return answered


def told(error: AtollError) -> ErrorBody:
    """Return an error without the paths of this host."""
    body, home = error_body(error), str(Home.default().path)
    hide = {
        name: text.replace(home, "HOME")
        for name in ("message", "hint")
        if (text := getattr(body, name)) is not None and home in text
    }
    return msgspec.structs.replace(body, **hide) if hide else body


def _as_error(refusal: Refusal) -> AtollError:
    if refusal.status == 401:
        return DeniedError("the API key is missing or wrong", hint="`atoll login` takes another one")
    return _KINDS.get(refusal.status, AtollError)(refusal.message)


def _failed(body: ErrorBody, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(as_json(body), status, headers, "application/json")
