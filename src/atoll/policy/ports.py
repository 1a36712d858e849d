"""Ports of a rule, as ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable

Ports = tuple[tuple[int, int], ...]
"""Ranges of ports, first and last."""

LAST_PORT = 65_535
EVERY_PORT: Ports = ((1, LAST_PORT),)
WEB_PORTS: Ports = ((80, 80), (443, 443))
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def port_ranges(ports: Iterable[int | str]) -> Ports:
    """Return the ranges of a rule's ports, such as ``443`` and ``"8000-8100"``; adjacent ranges merge.

    Raises:
        ValueError: An entry is neither a port nor a range of ports.
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted(_range(port) for port in ports):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _range(port: int | str) -> tuple[int, int]:
    found = _RANGE.fullmatch(str(port))
    if found is None:
        raise ValueError(f"{port!r} is not a port or a range of ports")
    low = int(found[1])
    high = int(found[2] or low)
    if not 1 <= low <= high <= LAST_PORT:
        raise ValueError(f"{port!r} is not a port or a range of ports")
    return low, high
