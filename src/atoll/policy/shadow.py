"""Finds rules that can never match, because earlier ones decide everything that they would match."""

from __future__ import annotations

from itertools import product

from atoll.policy.hosts import plain_pattern
from atoll.policy.masks import Mask, RuleIndex, members, ports_of
from atoll.policy.ranges import network_of
from atoll.types import Policy, Rule


def shadowed(policy: Policy) -> tuple[int, int] | None:
    """Return the first rule that can never match, and the earlier rule that hides it; None if all can match.

    For a rule without addresses only public ones count: ``deny *`` after ``allow *`` never matches, although
    addresses that are not public pass by the first.
    """
    index = RuleIndex(policy.rules)
    for late, rule in enumerate(policy.rules):
        earlier = _deciding(index, rule) & ((1 << late) - 1)
        if earlier and (early := _decider(index, rule, earlier)) is not None:
            return late, early
    return None


def _deciding(index: RuleIndex, rule: Rule) -> Mask:
    """The rules that decide whatever this one would match, where hosts and ports are covered."""
    found = ~index.conditional
    if not rule.inspects:
        # A rule that requires HTTP, or changes requests, does not match a connection that is not HTTP.
        found &= ~index.inspects
    if not rule.addresses:
        return found & index.anywhere
    for text in rule.addresses:
        found &= index.covering_range(network_of(text))
    return found


def _decider(index: RuleIndex, rule: Rule, earlier: Mask) -> int | None:
    """The first of the earlier rules that decides, if for each host and range of ports there is one."""
    patterns = [plain_pattern(host) for host in rule.hosts] or [None]
    by_host = dict.fromkeys(index.covering_names(pattern) & earlier for pattern in patterns)
    by_port = dict.fromkeys(index.at_ports(first, last) for first, last in ports_of(rule))
    early = None
    for hosts, ports in product(by_host, by_port):
        if not hosts & ports:
            return None
        if early is None:
            early = next(members(hosts & ports))
    return early
