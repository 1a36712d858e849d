"""Finds the rules that fit a destination, without asking each rule.

A set of rules is one integer, in which bit 2 stands for the third rule. Names, ports and addresses each have
a table of such sets, so a destination among a thousand rules costs a few lookups and two ``&``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from atoll.policy.hosts import ANY, plain_pattern, suffixes
from atoll.policy.internal import is_internal, sandbox_ref
from atoll.policy.ports import EVERY_PORT, LAST_PORT, WEB_PORTS, Ports, port_ranges
from atoll.policy.ranges import Address, Network, network_of, never_open, only_closed, touches_closed
from atoll.types import Rule
from atoll.types.internal import SANDBOX_DOMAIN

Mask = int
"""A set of rules by their index."""


def members(mask: Mask) -> Iterator[int]:
    """The indices in a set, in order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(flags: Iterable[bool]) -> Mask:
    """The set of the rules whose flag is set."""
    return sum(1 << number for number, flag in enumerate(flags) if flag)


def ports_of(rule: Rule) -> Ports:
    """The ports of a rule. A rule about requests without ports means those of the web."""
    return port_ranges(rule.ports) or (WEB_PORTS if rule.inspects else EVERY_PORT)


class Names:
    """Sets of rules by patterns of names."""

    def __init__(self) -> None:
        self._any: Mask = 0
        self._exact: dict[str, Mask] = {}
        self._below: dict[str, Mask] = {}

    def add(self, pattern: str, mask: Mask) -> None:
        """Add the rules of a set to a pattern. An invalid pattern matches nothing."""
        plain = plain_pattern(pattern)
        if plain == ANY:
            self._any |= mask
        elif plain is not None:
            table, key = (self._below, plain[2:]) if plain.startswith("*.") else (self._exact, plain)
            table[key] = table.get(key, 0) | mask

    def of(self, name: str) -> Mask:
        """The rules that match a plain name."""
        return self.exactly(name) | self._any | self._above(name)

    def exactly(self, name: str) -> Mask:
        """The rules that have this plain name itself."""
        return self._exact.get(name, 0)

    def exposing(self, name: str) -> Mask:
        """The rules that have this internal name itself, or the pattern of every sandbox's name if it is one."""
        return self.exactly(name) | (self._below.get(SANDBOX_DOMAIN, 0) if sandbox_ref(name) else 0)

    def covering(self, pattern: str) -> Mask:
        """The rules that match every name that a plain pattern matches."""
        if pattern == ANY:
            return self._any
        if pattern.startswith("*."):
            return self._any | self._below.get(pattern[2:], 0) | self._above(pattern[2:])
        return self.of(pattern)

    def _above(self, name: str) -> Mask:
        mask = 0
        if self._below:
            for suffix in suffixes(name):
                mask |= self._below.get(suffix, 0)
        return mask


class _Ports:
    """Sets of rules by port, kept as changes between ports."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        flips: dict[int, Mask] = {}
        for number, rule in enumerate(rules):
            for first, last in ports_of(rule):
                for port in (first, last + 1):
                    flips[port] = flips.get(port, 0) ^ (1 << number)
        self._begins: list[int] = [0]
        self._masks: list[Mask] = [0]
        for port in sorted(flips):
            self._begins.append(port)
            self._masks.append(self._masks[-1] ^ flips[port])

    def through(self, first: int, last: int) -> Mask:
        """The rules that have all of these ports."""
        at = bisect_right(self._begins, first) - 1
        mask = self._masks[at]
        while mask and (at := at + 1) < len(self._begins) and self._begins[at] <= last:
            mask &= self._masks[at]
        return mask


class _Ranges:
    """Sets of rules by range of addresses."""

    def __init__(self) -> None:
        self._by_length: dict[tuple[int, int], dict[int, Mask]] = {}

    def add(self, network: Network, mask: Mask) -> None:
        table = self._by_length.setdefault((network.version, network.prefixlen), {})
        key = int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
        table[key] = table.get(key, 0) | mask

    def around(self, address: Address, most_bits: int) -> Mask:
        """The rules with a range around the address whose prefix has at most ``most_bits`` bits."""
        mask, bits, width, version = 0, int(address), address.max_prefixlen, address.version
        for (of_version, length), table in self._by_length.items():
            if of_version == version and length <= most_bits:
                mask |= table.get(bits >> (width - length), 0)
        return mask


class RuleIndex:
    """The rules of a policy, by their patterns, ports and addresses.

    Args:
        rules: The rules, checked.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.allows = mask_of(rule.may_pass for rule in rules)
        self.inspects = mask_of(rule.inspects for rule in rules)
        self.conditional = mask_of(rule.conditional for rule in rules)
        self.anywhere = mask_of(not rule.addresses for rule in rules)
        self.unnamed = mask_of(not rule.hosts for rule in rules)
        self._names = Names()
        self._ports = _Ports(rules)
        self._public, self._closed = _Ranges(), _Ranges()
        for number, rule in enumerate(rules):
            for pattern in rule.hosts:
                self._names.add(pattern, 1 << number)
            for text in rule.addresses:
                self._add_range(network_of(text), 1 << number)

    def covering_names(self, pattern: str | None) -> Mask:
        """The rules that cover every name of a plain pattern; None means every destination, named or not."""
        if pattern is None:
            return self.unnamed
        found = self.unnamed | self._names.covering(pattern)
        return self._only_exposing(found, pattern) if is_internal(pattern) else found

    def at_ports(self, first: int, last: int) -> Mask:
        """The rules that have all of these ports."""
        return self._ports.through(first, last)

    def covering_range(self, network: Network) -> Mask:
        """The rules that match every address of a range."""
        closed = touches_closed(network)
        found = (self._closed if closed else self._public).around(network.network_address, network.prefixlen)
        return found | (self.anywhere & ~self.allows if closed else self.anywhere)

    @property
    def at_every_port(self) -> Mask:
        """The rules that have all ports."""
        return self._ports.through(1, LAST_PORT)

    def _only_exposing(self, found: Mask, name: str) -> Mask:
        # A wider pattern never opens ports of the host or of a sandbox, but it may well shut them.
        return (found & ~self.allows) | self._names.exposing(name)

    def _add_range(self, network: Network, mask: Mask) -> None:
        self._public.add(network, mask)
        opens = only_closed(network) and not never_open(network)
        if opens or not mask & self.allows:
            self._closed.add(network, mask)
