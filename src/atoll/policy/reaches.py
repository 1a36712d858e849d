"""Where a policy lets a sandbox send something, at worst.

Everything here errs towards too much: a place that is not in the answer cannot be reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from atoll.policy.check import rule_name
from atoll.policy.hosts import ANY, plain_pattern
from atoll.policy.internal import sandbox_ref
from atoll.policy.masks import Mask, Names, RuleIndex, ports_of
from atoll.policy.overlaps import Budget, common_hosts, common_methods, common_ports, common_ranges
from atoll.policy.ports import EVERY_PORT, Ports, port_ranges
from atoll.policy.ranges import network_of, only_closed
from atoll.policy.reach_text import listed, ports_text, reach_text
from atoll.types import HOST_NAME, Policy, Reach, ReachKind, Rule

_COMPARISONS = 100_000
_UNLESS_MOST = 3
_PUBLIC: tuple[ReachKind, ...] = ("public", "names", "addresses")


def reaches_of(policy: Policy | None) -> tuple[Reach, ...]:
    """Where a checked policy lets something pass, in the order of its rules. None is everything public."""
    if policy is None:
        return (_told(Reach(kind="public")),)
    survey = _Survey(policy)
    found = [reach for number in range(len(policy.rules)) for reach in survey.reaches(number)]
    everything = (_told(Reach(kind="public")),) if policy.mode == "observe" else ()
    return (*everything, *found)


def within_ceiling(reaches: Sequence[Reach], ceiling: Sequence[Reach]) -> tuple[Reach, ...]:
    """What passes both. If there is too much to compare, it is what passes the policy."""
    budget = Budget(_COMPARISONS)
    found: list[Reach] = []
    for own in reaches:
        cost = sum(
            1 + len(own.hosts) * len(top.hosts) + len(own.addresses) * len(top.addresses) for top in ceiling
        )
        if not budget.take(cost):
            found.append(own)
            continue
        found += [both for top in ceiling if (both := _both(own, top)) is not None]
    return tuple(dict.fromkeys(found))


def _both(own: Reach, top: Reach) -> Reach | None:
    if own.kind != top.kind and not (own.kind in _PUBLIC and top.kind in _PUBLIC):
        return None
    hosts, ranges = common_hosts(own.hosts, top.hosts), common_ranges(own.addresses, top.addresses)
    methods = common_methods(own.methods, top.methods)
    ports = common_ports(_ranges(own), _ranges(top))
    if hosts is None or ranges is None or methods is None or not ports:
        return None
    return _told(
        msgspec.structs.replace(
            own,
            kind=_kind(hosts, ranges) if own.kind in _PUBLIC else own.kind,
            hosts=hosts,
            addresses=ranges,
            methods=methods,
            ports=_shown(ports),
            inspected=own.inspected or top.inspected,
            conditional=own.conditional or top.conditional,
            unless=(*own.unless, *(f"{each} (ceiling)" for each in top.unless)),
        )
    )


class _Survey:
    """Reads the rules of one policy.

    Args:
        policy: The policy, checked.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._index = RuleIndex(policy.rules)
        self._passed = Names()
        for pattern in policy.passthrough:
            self._passed.add(pattern, 1)
        self._observes = policy.mode == "observe"
        self._budget = Budget(_COMPARISONS)

    def reaches(self, number: int) -> Iterator[Reach]:
        """What one rule lets through, split by what lies there."""
        rule = self._policy.rules[number]
        if not rule.may_pass:
            return
        for kind, hosts, ranges in _places(rule):
            left = self._undecided(number, hosts, ranges)
            if left is None:
                continue
            reach = self._reach(number, left, ranges)
            # What only observes lets everything public through anyway.
            if not self._observes or kind not in _PUBLIC or reach.secrets:
                kind = _kind(left, ranges) if kind in _PUBLIC else kind
                yield _told(msgspec.structs.replace(reach, kind=kind))

    def _reach(self, number: int, hosts: tuple[str, ...], ranges: tuple[str, ...]) -> Reach:
        rule = self._policy.rules[number]
        reach = Reach(
            kind="names",
            rule=number,
            hosts=hosts,
            addresses=ranges,
            ports=_shown(ports_of(rule)),
            limited=rule.limit is not None,
            secrets=tuple(dict.fromkeys(name for inject in rule.inject for name in inject.secrets)),
        )
        if self._observes:
            # What passes only because nobody is asked, passes unchanged.
            return reach if rule.action == "allow" else msgspec.structs.replace(reach, secrets=())
        approvals = 0 if rule.action != "ask" else 1 if rule.ask is None else rule.ask.approvals
        return msgspec.structs.replace(
            reach,
            methods=rule.methods,
            inspected=rule.inspects,
            conditional=_has_more_conditions(rule),
            approvals=approvals,
            unless=tuple(self._refusals(number, reach, rule.methods)),
        )

    def _undecided(
        self, number: int, hosts: tuple[str, ...], ranges: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """The names about which no earlier rule decides in any case; None if nothing is left."""
        rule, index = self._policy.rules[number], self._index
        refusing = ~index.conditional & ~index.inspects & ~index.allows & ((1 << number) - 1)
        if ranges:
            for text in ranges:
                refusing &= index.covering_range(network_of(text))
        else:
            refusing &= index.anywhere
        if not hosts:
            return None if self._refused(refusing & index.covering_names(None), rule) else ()
        left = tuple(
            host
            for host in hosts
            if not (rule.inspects and self._passed.covering(host))
            and not self._refused(refusing & index.covering_names(host), rule)
        )
        return left or None

    def _refused(self, refusing: Mask, rule: Rule) -> bool:
        return bool(refusing) and all(self._index.at_ports(*ends) & refusing for ends in ports_of(rule))

    def _refusals(self, number: int, reach: Reach, methods: tuple[str, ...]) -> Iterator[str]:
        """The earlier rules that refuse a part of it, or ask first, as phrases."""
        shown = more = 0
        for earlier, rule in enumerate(self._policy.rules[:number]):
            if rule.action == "allow":
                continue
            if not self._budget.take(1 + len(rule.hosts) * len(reach.hosts) + len(rule.addresses)):
                yield "perhaps earlier rules refuse more"
                return
            if not _meets(rule, reach, methods):
                continue
            if shown == _UNLESS_MOST:
                more += 1
                continue
            shown += 1
            does = "asks first about" if rule.action == "ask" else "refuses"
            yield f"{rule_name(self._policy, earlier)} {does} {_matter(rule)}"
        if more:
            yield f"{more} more rules refuse or ask"


def _places(rule: Rule) -> Iterator[tuple[ReachKind, tuple[str, ...], tuple[str, ...]]]:
    """What a rule is about, by kind, with its names and ranges."""
    hosts = tuple(plain_pattern(host) or host for host in rule.hosts)
    inside = tuple(host for host in hosts if host == HOST_NAME or sandbox_ref(host) is not None)
    outside = tuple(host for host in hosts if host not in inside)
    shut = tuple(text for text in rule.addresses if only_closed(network_of(text)))
    public = tuple(text for text in rule.addresses if text not in shut)
    if outside or not hosts:
        if public or not rule.addresses:
            yield "names", outside, public
        if shut:
            yield "private", outside, shut
    if not rule.addresses:  # both are reached by the host's loopback interface, which no range opens
        if HOST_NAME in inside:
            yield "host", (HOST_NAME,), ()
        if others := tuple(host for host in inside if host != HOST_NAME):
            yield "sandbox", others, ()


def _meets(rule: Rule, reach: Reach, methods: tuple[str, ...]) -> bool:
    hosts = tuple(plain_pattern(host) or host for host in rule.hosts)
    return (
        common_hosts(hosts, reach.hosts) is not None
        and common_ranges(rule.addresses, reach.addresses) is not None
        and common_methods(rule.methods, methods) is not None
        and bool(common_ports(ports_of(rule), _ranges(reach)))
    )


def _matter(rule: Rule) -> str:
    """What a rule is about, in a few words."""
    some = "some " if _has_more_conditions(rule) else ""
    what = f"{some}{listed(rule.methods)} requests" if rule.methods else f"{some}requests" if some else ""
    where = listed((*rule.hosts, *rule.addresses))
    ports = ports_text(_shown(port_ranges(rule.ports)))
    return " ".join(filter(None, (what, f"to {where}" if what and where else where, ports))) or "everything"


def _has_more_conditions(rule: Rule) -> bool:
    return msgspec.structs.replace(rule, methods=()).conditional


def _kind(hosts: Sequence[str], ranges: Sequence[str]) -> ReachKind:
    if not ranges and (not hosts or ANY in hosts):
        return "public"
    return "names" if hosts else "addresses"


def _ranges(reach: Reach) -> Ports:
    return port_ranges(reach.ports) or EVERY_PORT


def _shown(ports: Ports) -> tuple[str, ...]:
    if ports == EVERY_PORT:
        return ()
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in ports)


def _told(reach: Reach) -> Reach:
    return msgspec.structs.replace(reach, text=reach_text(reach))
