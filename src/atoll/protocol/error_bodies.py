"""How an error travels: by its code, with its message and hint."""

from __future__ import annotations

import errno
from typing import NoReturn, overload

import msgspec

from atoll import errors
from atoll.errors import AtollError, InternalError, NoSpaceError
from atoll.protocol.shortages import shortage_of

_CLASSES: list[type[AtollError]] = [getattr(errors, name) for name in errors.__all__]
_BY_CODE = {kind.code: kind for kind in _CLASSES}


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer that is not a success.

    ``retryable`` says whether the same request may succeed later; None leaves that to the code.
    """

    code: str
    message: str
    hint: str | None = None
    sandbox_id: str | None = None
    retryable: bool | None = None


def error_body(error: BaseException) -> ErrorBody:
    """Return the error as the peer gets it.

    A foreign error becomes an ``InternalError`` that names only its class.
    """
    error = ours(error)
    if isinstance(error, AtollError):
        return ErrorBody(
            code=error.code,
            message=error.message,
            hint=error.remedy,
            sandbox_id=error.sandbox_id,
            retryable=error.retryable,
        )
    return ErrorBody(
        code=InternalError.code,
        message=f"the supervisor failed: {type(error).__name__}",
        hint=InternalError.__doc__,
    )


@overload
def ours(error: Exception) -> Exception: ...
@overload
def ours(error: BaseException) -> BaseException: ...
def ours(error: BaseException) -> BaseException:
    """Return a full disk as a ``NoSpaceError``, and another shortage of the host as a ``ShortageError``.

    Any other error is returned unchanged.
    """
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not full or isinstance(error, AtollError):
        return shortage_of(error) or error
    return NoSpaceError("no space is left under the home", hint="free some space, or kill a sandbox")


def error_of(body: ErrorBody) -> AtollError:
    """Return the error that a peer reported, by its code. A code of a later version gives the base class."""
    kind = _BY_CODE.get(body.code, AtollError)
    return kind(body.message, hint=body.hint, sandbox_id=body.sandbox_id, retryable=body.retryable)


def raise_body(body: ErrorBody) -> NoReturn:
    """Raise the error that a peer reported."""
    raise error_of(body)
