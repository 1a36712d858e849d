"""Sizes on the command line, in MiB or with a unit."""

from __future__ import annotations

import re
from typing import Any

import click

from atoll.types import NO_LIMIT

_UNITS_MIB = {"": 1, "m": 1, "g": 1024, "t": 1024 * 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([mgt]?)(?:i?b)?", re.IGNORECASE)


def mib_of(text: str) -> int:
    """Return a size such as ``512``, ``512m``, ``512MiB`` or ``2g`` in MiB. A unit is a power of 1024.

    Raises:
        ValueError: It is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[2] == "" and not found[0].strip().isdecimal()):
        raise ValueError(text)
    return int(float(found[1]) * _UNITS_MIB[found[2].lower()])


class Mib(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """A size in MiB, or with a unit.

    Args:
        none: Whether ``none`` is allowed, for no limit.
    """

    name = "mib"

    def __init__(self, *, none: bool = False) -> None:
        self._none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the MiB."""
        if value == "none" and self._none:
            return NO_LIMIT
        try:
            return mib_of(str(value))
        except ValueError:
            ways = f"give MiB, or a unit as in 512m or 2g{', or none for no limit' if self._none else ''}"
            self.fail(f"{value!r} is not a size: {ways}", param, ctx)
