"""Reads values from the query of a request."""

from __future__ import annotations

import math

from atoll.errors import InvalidSpecError

# The largest number that a file offset, every database and every client can hold.
_MOST = 2**53
_DIGITS_MOST = len(str(_MOST))
_SHOWN = 40


def whole_number(text: str, name: str) -> int:
    """A whole number that is not negative.

    Raises:
        InvalidSpecError: It is none.
    """
    plain = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MOST
    if not plain or int(text) > _MOST:
        raise InvalidSpecError(
            f"{name} is {text[:_SHOWN]!r}, which is no number from 0 to {_MOST}", hint="give a whole number"
        )
    return int(text)


def unix_time(text: str | None, name: str) -> float | None:
    """A Unix time; None if it is missing.

    Raises:
        InvalidSpecError: It is none.
    """
    if text is None:
        return None
    try:
        at_s = float(text)
    except ValueError:
        at_s = math.nan
    if not abs(at_s) <= _MOST:  # neither inf nor nan
        raise InvalidSpecError(f"{name} is {text[:_SHOWN]!r}, which is no Unix time", hint="give seconds")
    return at_s


def metadata_of(pairs: list[str]) -> dict[str, str]:
    """The metadata of ``metadata=NAME=VALUE``.

    Raises:
        InvalidSpecError: A pair has no value.
    """
    wanted = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidSpecError(f"metadata={pair!r} has no value", hint="write metadata=NAME=VALUE")
        wanted[name] = value
    return wanted
