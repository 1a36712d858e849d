"""Secrets: values that stay outside sandboxes, where they are put into requests."""

from __future__ import annotations

import msgspec

from atoll.errors import InvalidSpecError

SECRET_BYTES_MOST = 64 << 10
_HINT = "give text of 1 byte to 64 KiB, in one line"


class SecretInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value. Times are Unix seconds.

    Args:
        secret_id: Its id, which begins with ``sec_``.
        name: Its name, in lower case, unique within its team.
        team: The team that it belongs to. None is no team.
        hosts: Only these hosts may get it: names, or patterns of names. Empty means that policies decide.
        metadata: Labels.
        canary: Whether it is a fake: a sandbox that sends it is unplugged.
        version: 1 at first, and one more with each update.
        created_at: When it was created.
        changed_at: When it was created or updated last.
    """

    secret_id: str
    name: str
    team: str | None
    hosts: tuple[str, ...]
    metadata: dict[str, str]
    canary: bool
    version: int
    created_at: float
    changed_at: float


def check_secret_value(value: object) -> str:
    """Return the value of a secret if it is one. No error shows it.

    Raises:
        InvalidSpecError: It is not text, is empty or too long, or has a NUL or a line break, which would end
            a header.
    """
    if not isinstance(value, str):
        raise InvalidSpecError(f"the secret's value is of type {type(value).__name__}", hint=_HINT)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidSpecError("the secret's value is not valid UTF-8", hint=_HINT) from None
    if not value:
        raise InvalidSpecError("the secret's value is empty", hint=_HINT)
    if size > SECRET_BYTES_MOST:
        raise InvalidSpecError(f"the secret's value has {size} bytes", hint=_HINT)
    if any(char in value for char in "\0\r\n"):
        raise InvalidSpecError("the secret's value has a line break or a NUL in it", hint=_HINT)
    return value
