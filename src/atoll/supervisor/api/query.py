"""Reads values from the query of a request."""

from __future__ import annotations

from atoll.errors import InvalidSpecError


def whole_number(text: str, name: str) -> int:
    """A whole number.

    Raises:
        InvalidSpecError: It is none.
    """
    try:
        return int(text)
    except ValueError:
        raise InvalidSpecError(f"{name}={text!r} is not a number") from None


def unix_time(text: str | None, name: str) -> float | None:
    """A Unix time; None if it is missing.

    Raises:
        InvalidSpecError: It is none.
    """
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidSpecError(f"{name}={text!r} is not a Unix time") from None


def metadata_of(pairs: list[str]) -> dict[str, str]:
    """The metadata of ``metadata=NAME=VALUE``.

    Raises:
        InvalidSpecError: One of them has no value.
    """
    wanted = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidSpecError(f"metadata={pair!r} has no value", hint="write metadata=NAME=VALUE")
        wanted[name] = value
    return wanted
