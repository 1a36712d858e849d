"""What two sets of destinations have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from atoll.policy.hosts import matches_host
from atoll.policy.ports import Ports
from atoll.policy.ranges import network_of

T = TypeVar("T")


class Budget:
    """How many comparisons are left. Policies of clients may be large, and an answer must not take seconds."""

    def __init__(self, comparisons: int) -> None:
        self._left = comparisons

    def take(self, comparisons: int) -> bool:
        """Whether so many are left; then they are used."""
        self._left -= comparisons
        return self._left >= 0


def common_hosts(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names of two lists of plain patterns; an empty list is every destination. None if there is none."""
    return _common(one, other, _narrower_name)


def common_ranges(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...] | None:
    """The ranges in two lists of them; an empty list is every address. None if there is none."""
    return _common(one, other, _narrower_range)


def common_methods(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...] | None:
    """The methods in two lists; an empty list is every method. None if there is none."""
    return _common(one, other, lambda a, b: a if a == b else None)


def common_ports(one: Ports, other: Ports) -> Ports:
    """The ports in two lists of ranges."""
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other)
    return tuple(sorted({(first, last) for first, last in pairs if first <= last}))


def _common(
    one: tuple[T, ...], other: tuple[T, ...], narrower: Callable[[T, T], T | None]
) -> tuple[T, ...] | None:
    if not one or not other:
        return one or other
    found: Iterable[T | None] = (narrower(a, b) for a in one for b in other)
    return tuple(dict.fromkeys(each for each in found if each is not None)) or None


def _narrower_name(one: str, other: str) -> str | None:
    # A pattern fits a wider one as a name below it would.
    if matches_host(one, other):
        return other
    return one if matches_host(other, one) else None


def _narrower_range(one: str, other: str) -> str | None:
    a, b = network_of(one), network_of(other)
    if a.version != b.version or not a.overlaps(b):
        return None
    return one if a.prefixlen >= b.prefixlen else other
