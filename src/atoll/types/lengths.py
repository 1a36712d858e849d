"""Lengths of time, written as people write them."""

from __future__ import annotations

import re

from atoll.errors import InvalidSpecError

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smhd]?)")
_MOST_S = 10**9
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float:
    """Return the seconds of ``90``, ``90s``, ``10m``, ``2h`` or ``1d``.

    Raises:
        InvalidSpecError: It is none of these, or over 30 years.
    """
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise InvalidSpecError(f"{text!r} is not a length of time", hint="give seconds, or 90s, 10m, 2h, 1d")
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if seconds > _MOST_S:
        raise InvalidSpecError(f"{text[:40]!r} is too long", hint=f"give at most {_MOST_S} seconds")
    return seconds
