"""Ports of a rule, as ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Ports = tuple[tuple[int, int], ...]
"""Ranges of ports, first and last. Empty is every port."""

WEB_PORTS: Ports = ((80, 80), (443, 443))


def port_ranges(ports: Iterable[int | str]) -> Ports:
    """Return the ranges of a rule's ports, such as ``443`` and ``"8000-8100"``.

    Raises:
        ValueError: One of them is not a port or a range of ports.
    """
    return tuple(sorted(_range(port) for port in ports))


def in_ports(ranges: Ports, port: int) -> bool:
    """Whether a port is in one of the ranges."""
    return not ranges or any(first <= port <= last for first, last in ranges)


def covers_ports(ranges: Ports, other: Ports) -> bool:
    """Whether all ports of the other ranges are in these."""
    if not ranges:
        return True
    return bool(other) and all(_within(ranges, first, last) for first, last in other)


def _within(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    for begin, end in ranges:  # sorted, so that ranges which meet are taken one after the other
        if begin <= first <= end:
            if last <= end:
                return True
            first = end + 1
    return False


def _range(port: int | str) -> tuple[int, int]:
    text = str(port)
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or isinstance(port, bool):
        raise ValueError(f"{port!r} is not a port or a range of ports")
    low, high = int(first), int(last) if dash else int(first)
    if not 1 <= low <= high <= 65_535:
        raise ValueError(f"{port!r} is not a port or a range of ports")
    return low, high
