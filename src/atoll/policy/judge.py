"""Decides about connections by name, address and port. Nothing else in atoll decides this.

Rules about requests are decided by the edge, which gets the numbers of the rules that a connection's
destination matches.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from atoll.policy.hosts import ANY, matches_host, plain_pattern, suffixes
from atoll.policy.ports import WEB_PORTS, Ports, in_ports, port_ranges
from atoll.policy.ranges import Address, Network, closed, plain
from atoll.types import HOST_NAME, Action, Policy, Rule

_CACHED = 4096


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a connection.

    Args:
        action: ``inspect`` hands it to the edge, which judges each request by the rules ``kept``.
        rule: The index of the rule that decides; None if no rule matches.
        kept: Indices of the rules that the destination matches, in order, for the edge.
        reason: Why it is denied, as text for people; empty if it is not.
        observed: The policy only observes: it would have been denied.
    """

    action: Literal["allow", "deny", "unplug", "inspect"]
    rule: int | None = None
    kept: tuple[int, ...] = ()
    reason: str = ""
    observed: bool = False


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A rule as far as a connection is concerned. Names are matched by the index."""

    action: Action
    networks: tuple[Network, ...]
    ports: Ports
    inspects: bool


class Judge:
    """A policy, ready to decide. Use ``check_policy`` first.

    Args:
        policy: The policy to decide by.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._observes = policy.mode == "observe"
        self._rules = [_compiled(rule) for rule in policy.rules]
        self._exact: dict[str, list[int]] = {}
        self._below: dict[str, list[int]] = {}
        self._any_name: list[int] = []
        self._anything: list[int] = []
        for number, rule in enumerate(policy.rules):
            self._note_hosts(number, rule)
        self._passthrough = [plain_pattern(pattern) or pattern for pattern in policy.passthrough]
        # One cache for each judge, of a bounded size: a guest may try every port.
        self._decide = lru_cache(maxsize=_CACHED)(self._decided)

    def knows_name(self, name: str) -> bool:
        """Whether any port of a host with this plain name may be reached: only then its address is told."""
        if self._observes:
            return True
        return any(self._rules[number].action == "allow" for number in self._candidates(name))

    def knows_address(self, name: str, address: str) -> bool:
        """Whether any port may be reached at this address under this plain name."""
        parsed = plain(address)
        why_closed = closed(parsed)
        if self._observes and why_closed is None:
            return True
        rules = (self._rules[number] for number in self._candidates(name))
        return any(rule.action == "allow" and _has(rule, parsed, why_closed) for rule in rules)

    def looks_into(self, name: str) -> bool:
        """Whether a connection to this plain name must show that it asks for that name, and no other one."""
        return not self._observes and name != HOST_NAME and not self._passes_through(name)

    def connection(self, name: str | None, address: str, port: int) -> Verdict:
        """Decide about a connection.

        Args:
            name: The plain name that the guest asked for; None if it gave an address.
            address: What the name was resolved to, or the address that the guest gave.
            port: The port of the destination.
        """
        return self._decide(name, address, port)

    def _decided(self, name: str | None, address: str, port: int) -> Verdict:
        if not 0 < port < 65_536:
            return Verdict("deny", reason=f"{port} is not a port")
        parsed = plain(address)
        why_closed = closed(parsed) if name != HOST_NAME else None
        passes_through = name is not None and self._passes_through(name)
        kept: list[int] = []
        for number in self._candidates(name):
            rule = self._rules[number]
            if passes_through and rule.inspects:
                continue
            if not in_ports(rule.ports, port) or not _has(rule, parsed, why_closed):
                continue
            kept.append(number)
            if not rule.inspects:
                break
        return self._verdict(kept, name or address, port, f"{address} is {why_closed}" if why_closed else "")

    def _verdict(self, kept: list[int], destination: str, port: int, closed_because: str) -> Verdict:
        if kept and self._rules[kept[0]].inspects:
            return Verdict("inspect", kept=tuple(kept))
        action = self._rules[kept[0]].action if kept else "deny"
        if action == "allow":
            return Verdict("allow", kept[0])
        if action == "unplug" and not self._observes:
            what = f"{rule_name(self.policy, kept[0])} unplugs at {destination}:{port}"
            return Verdict("unplug", kept[0], reason=what)
        if closed_because:
            return Verdict("deny", kept[0] if kept else None, reason=closed_because)
        if kept:
            what = "denies" if action == "deny" else "unplugs at"
            reason = f"{rule_name(self.policy, kept[0])} {what} {destination}:{port}"
        else:
            reason = f"no rule allows {destination}:{port}"
        if self._observes:
            return Verdict("allow", kept[0] if kept else None, reason=reason, observed=True)
        return Verdict("deny", kept[0] if kept else None, reason=reason)

    def _candidates(self, name: str | None) -> Iterator[int]:
        """The rules whose hosts match, in order."""
        found = list(self._anything) if name != HOST_NAME else []
        if name is not None:
            found += self._exact.get(name, ())
            if name != HOST_NAME:
                found += self._any_name
                for suffix in suffixes(name):
                    found += self._below.get(suffix, ())
        return iter(sorted(set(found)))

    def _note_hosts(self, number: int, rule: Rule) -> None:
        if not rule.hosts:
            self._anything.append(number)
        for pattern in map(plain_pattern, rule.hosts):
            if pattern == ANY:
                self._any_name.append(number)
            elif pattern is not None and pattern.startswith("*."):
                self._below.setdefault(pattern[2:], []).append(number)
            elif pattern is not None:
                self._exact.setdefault(pattern, []).append(number)

    def _passes_through(self, name: str) -> bool:
        return any(matches_host(pattern, name) for pattern in self._passthrough)


def rule_name(policy: Policy, number: int) -> str:
    """What people call a rule: its name, or its number counted from 1."""
    name = policy.rules[number].name
    return f"rule {number + 1} ({name})" if name else f"rule {number + 1}"


def _compiled(rule: Rule) -> _Compiled:
    ports = port_ranges(rule.ports)
    if rule.inspects and not ports:
        ports = WEB_PORTS
    networks = tuple(ipaddress.ip_network(text) for text in rule.addresses)
    return _Compiled(rule.action, networks, ports, rule.inspects)


def _has(rule: _Compiled, address: Address, why_closed: str | None) -> bool:
    if rule.networks:
        return _in_any(address, rule.networks)
    # Only a rule that names a range opens what is not public.
    return rule.action != "allow" or why_closed is None


def _in_any(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
