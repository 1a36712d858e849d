"""Finds rules that can never match, because earlier ones decide everything that they would match."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from atoll.policy.hosts import ANY, pattern_covers, plain_pattern
from atoll.policy.ports import WEB_PORTS, Ports, covers_ports, port_ranges
from atoll.policy.ranges import closed
from atoll.types import Policy, Rule


def shadowed(policy: Policy) -> tuple[int, int] | None:
    """Return the first rule that can never match, and an earlier one that is before it; None if all can."""
    for late, rule in enumerate(policy.rules):
        earlier = list(enumerate(policy.rules[:late]))
        deciders = [_decider(earlier, rule, host, ports) for host in _hosts(rule) for ports in _ports(rule)]
        found = [number for number in deciders if number is not None]
        if len(found) == len(deciders):
            return late, found[0]
    return None


def _decider(earlier: Sequence[tuple[int, Rule]], rule: Rule, host: str | None, ports: Ports) -> int | None:
    for number, other in earlier:
        if _decides(other, rule) and _covers_host(other, host) and covers_ports(_all_ports(other), ports):
            return number
    return None


def _decides(other: Rule, rule: Rule) -> bool:
    """Whether the other rule decides whatever this one would match, where hosts and ports are covered."""
    if other.conditional or (other.protocol == "http" and not rule.inspects):
        return False
    # A rule that changes requests does not match a connection that is not HTTP.
    if other.inspects and not rule.inspects:
        return False
    if other.addresses:
        return bool(rule.addresses) and all(_within(text, other.addresses) for text in rule.addresses)
    # Without ranges a rule that allows leaves what is not public to later ones.
    return other.action != "allow" or not any(_is_closed(text) for text in rule.addresses)


def _hosts(rule: Rule) -> Iterator[str | None]:
    yield from (plain_pattern(host) or host for host in rule.hosts)
    if not rule.hosts:
        yield None


def _ports(rule: Rule) -> Iterator[Ports]:
    ports = _all_ports(rule)
    if not ports:
        yield ()
    for one in ports:
        yield (one,)


def _all_ports(rule: Rule) -> Ports:
    ports = port_ranges(rule.ports)
    return WEB_PORTS if rule.inspects and not ports else ports


def _covers_host(other: Rule, host: str | None) -> bool:
    if not other.hosts:
        return True
    if host is None:
        return False
    return any(pattern_covers(plain_pattern(pattern) or ANY, host) for pattern in other.hosts)


def _within(text: str, ranges: tuple[str, ...]) -> bool:
    network = ipaddress.ip_network(text)
    others = (ipaddress.ip_network(other) for other in ranges)
    return any(network.version == other.version and network.subnet_of(other) for other in others)  # type: ignore[arg-type]


def _is_closed(text: str) -> bool:
    network = ipaddress.ip_network(text)
    return closed(network.network_address) is not None or closed(network.broadcast_address) is not None
