"""Destinations that E2B's clients allow and deny: addresses, ranges of them, and names."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from atoll.policy import CLOSED, plain_pattern
from atoll.server.e2b.answers import Refusal
from atoll.types import HOST_NAME

EVERYTHING = "0.0.0.0/0"
DENY_ALL_FIRST = (
    "When specifying allowed domains in allow out, "
    "you must include 'ALL_TRAFFIC' in deny out to block all other traffic."
)
Range = IPv4Network | IPv6Network
_ALL = ipaddress.ip_network(EVERYTHING)
_CLOSED = [ipaddress.ip_network(text) for text in CLOSED]
# IPv6 ranges that stand for IPv4 addresses
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))


@dataclass(frozen=True)
class Destinations:
    """The destinations that a sandbox may reach. Allowed ones win over denied ones; the rest is allowed too.

    Args:
        names: Names and patterns of names that are allowed.
        public: Public ranges of addresses that are allowed.
        private: Other ranges that are allowed, and that the operator opens.
        denied: Public ranges that are denied, without wholly allowed ranges.
        denies_rest: Whether everything that is not allowed is denied.
    """

    names: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    denies_rest: bool = False


def destinations_of(
    allow: Sequence[str], deny: Sequence[str], *, nothing_else: bool, opened: Iterable[Range] = ()
) -> Destinations:
    """Return the destinations in ``allowOut`` and ``denyOut``.

    Args:
        allow: Addresses, ranges, names and patterns of names.
        deny: Addresses and ranges.
        nothing_else: Deny everything, even if ``deny`` does not.
        opened: Ranges that are not public, which clients may allow.

    Raises:
        Refusal: An entry is invalid (400).
    """
    denied = [_range(text, f"invalid denied CIDR {text}") for text in deny]
    ranges, names = _parted(allow)
    if names and not nothing_else and EVERYTHING not in deny:
        raise Refusal(400, DENY_ALL_FIRST)
    allowed = _merged(ranges)
    private = tuple(str(one) for one in _shared(ranges, opened))
    # it stands for every IPv6 address too
    if _ALL in ranges or "*" in names:
        return Destinations(private=private)
    denied = _merged(denied)
    if nothing_else or _ALL in denied:
        public = tuple(str(one) for one in _public(allowed))
        return Destinations(tuple(names), public, private, denies_rest=True)
    left = [one for one in denied if not is_closed(one) and not within(one, allowed)]
    if not left:
        return Destinations(private=private)
    public = tuple(str(one) for one in _public(allowed))
    return Destinations(tuple(names), public, private, tuple(map(str, left)))


def _parted(allow: Sequence[str]) -> tuple[list[Range], list[str]]:
    """Return the ranges and the names of ``allowOut``."""
    ranges: list[Range] = []
    names: dict[str, None] = {}
    for text in allow:
        wrong = f"invalid allowed address {text}"
        name = plain_pattern(text)
        # it would open ports of this host's loopback interface
        if name == HOST_NAME:
            raise Refusal(400, wrong)
        if name is not None:
            names[name] = None
        else:
            ranges.append(_range(text, wrong))
    return ranges, list(names)


def _range(text: str, wrong: str) -> Range:
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise Refusal(400, wrong) from None
    if "%" in text:
        raise Refusal(400, wrong)
    if isinstance(found, IPv6Network) and any(found.subnet_of(carrier) for carrier in _CARRIERS):
        low = int(found.network_address) & 0xFFFF_FFFF
        return IPv4Network((low, found.prefixlen - 96))
    return found


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges, merged: a range that lies in their sum lies in a single one of the result."""
    given = list(ranges)
    fours = [one for one in given if isinstance(one, IPv4Network)]
    sixes = [one for one in given if isinstance(one, IPv6Network)]
    return [*ipaddress.collapse_addresses(fours), *ipaddress.collapse_addresses(sixes)]


def _public(ranges: Iterable[Range]) -> list[Range]:
    """Return the public parts of ranges."""
    left = list(ranges)
    for closed in _CLOSED:
        left = [part for one in left for part in _without(one, closed)]
    return left


def _without(one: Range, other: Range) -> list[Range]:
    if one.version != other.version or not one.overlaps(other):
        return [one]
    if within(one, (other,)):
        return []
    return sorted(one.address_exclude(other))  # type: ignore[arg-type]


def _shared(allowed: Iterable[Range], opened: Iterable[Range]) -> list[Range]:
    """Return the common ranges: not public, and allowed as such."""
    found: list[Range] = []
    for one in filter(is_closed, allowed):
        for other in opened:
            if within(one, (other,)):
                found.append(one)
            elif within(other, (one,)):
                found.append(other)
    return _merged(found)


def is_closed(one: Range) -> bool:
    """Tell whether no address of a range is public."""
    return within(one, _CLOSED)


def within(one: Range, others: Iterable[Range]) -> bool:
    """Tell whether a range lies in one of the others."""
    return any(one.version == other.version and one.subnet_of(other) for other in others)  # type: ignore[arg-type]
