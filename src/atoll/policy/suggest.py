"""Writes the smallest policy that covers a sandbox's observed traffic, for a person to read."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from atoll.policy.check import MOST_PATTERNS_IN_ALL, MOST_RULES, pattern_count
from atoll.policy.hosts import plain_host, suffixes
from atoll.policy.masks import ports_of
from atoll.policy.paths import path_patterns
from atoll.policy.ranges import never_open, plain
from atoll.types import EgressDecision, Policy, Rule

MOST_NOTES = 100
MOST_IN_RULE = 500
_MANY_NAMES = 5
_METHOD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A policy for a person to read.

    Args:
        policy: The policy, which covers the passed traffic.
        notes: Its omissions with their reasons, and the places where a person may widen it; a sentence each.
    """

    policy: Policy
    notes: tuple[str, ...] = ()


def suggest(decisions: Iterable[EgressDecision]) -> Suggestion:
    """Return the smallest policy that covers the traffic that the decisions let through.

    It covers only traffic that passed, because a rule allowed it or because the policy only observed. Refused
    traffic, and traffic that a rule denies by itself, appears in the notes and never in the policy: a person
    decides about that.
    """
    seen, notes = _Seen(), _Notes()
    for decision in decisions:
        if decision.action == "ask" and not decision.observed:
            continue  # what became of it is another decision
        if decision.action != "allow" and not (decision.observed and decision.rule is None):
            notes.add(_refusal(decision), decision.count)
        elif decision.port:  # a name alone needs no rule of its own
            fault = seen.add(decision)
            if fault:
                notes.add(fault, decision.count)
    rules = (*_request_rules(seen), *_connection_rules(seen))
    fitting = _fitting(rules)
    if left := len(rules) - len(fitting):
        notes.add(f"{left} rules more than a policy may have are left out", 1)
    return Suggestion(Policy(rules=fitting), notes.told() + tuple(_families(seen.names())))


def _fitting(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    counts = accumulate(map(pattern_count, rules))
    return tuple(rule for rule, count in zip(rules, counts, strict=True) if count <= MOST_PATTERNS_IN_ALL)[
        :MOST_RULES
    ]


class _Notes:
    """Sentences, each once, with how often it was so."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, text: str, count: int) -> None:
        self._counts[text] = self._counts.get(text, 0) + count

    def told(self) -> tuple[str, ...]:
        told = [f"{text} ({count} times)" if count > 1 else text for text, count in self._counts.items()]
        rest = len(told) - MOST_NOTES
        return (*told[:MOST_NOTES], f"and {rest} more") if rest > 0 else tuple(told)


class _Seen:
    """The passed traffic: the paths by method, for each host and port; None if not all of it was requests."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], dict[str, set[str]] | None] = {}

    def add(self, decision: EgressDecision) -> str:
        """Add one; return why it cannot be covered."""
        host = _host(decision.host)
        if host is None:
            return f"{decision.host[:80]!r} is no host that a rule can name"
        if not 0 < decision.port <= 65_535:
            return f"{decision.port} is no port of {host}"
        where = (host, decision.port)
        if decision.scheme not in ("http", "https") or not decision.method:
            self._requests[where] = None
            return ""
        if (
            "*" in decision.path
            or not decision.path.startswith("/")
            or not _METHOD.fullmatch(decision.method)
        ):
            return (
                f"the request {decision.method[:32]!r} {decision.path[:80]!r} to {host} "
                "cannot be written as a rule: write one by hand"
            )
        methods = self._requests.setdefault(where, {})
        if methods is not None:
            methods.setdefault(decision.method, set()).add(decision.path)
        return ""

    def names(self) -> list[str]:
        return sorted({host for host, _ in self._requests if plain_host(host)})

    def connections(self) -> Iterator[tuple[str, int]]:
        return (where for where, methods in self._requests.items() if methods is None)

    def requests(self) -> Iterator[tuple[tuple[str, int], dict[str, set[str]]]]:
        return ((where, methods) for where, methods in self._requests.items() if methods)


def _host(text: str) -> str | None:
    """The plain name, or the range with just this address, if a rule can open it."""
    if (name := plain_host(text)) is not None:
        return name
    try:
        network = ipaddress.ip_network(plain(text))
    except ValueError:
        return None
    return None if never_open(network) else str(network)


def _refusal(decision: EgressDecision) -> str:
    where = f"{decision.host[:253]}:{decision.port}" if decision.port else f"the name {decision.host[:253]}"
    asked = f"{decision.method[:32]} " if decision.path else ""
    what = f"{asked}{where}{decision.path[:200]}"
    why = f": {decision.reason}" if decision.reason else ""
    if decision.observed:
        return f"{what} is not covered, because a rule is against it{why}"
    return f"{what} was refused and is not covered{why}"


_Body = tuple[tuple[str, ...], tuple[str, ...]]
_Group = tuple[tuple[int | str, ...], _Body]


def _connection_rules(seen: _Seen) -> Iterator[Rule]:
    ports: dict[str, set[int]] = {}
    for host, port in seen.connections():
        ports.setdefault(host, set()).add(port)
    yield from _rules((host, (_ranges(found), ((), ()))) for host, found in ports.items())


def _request_rules(seen: _Seen) -> Iterator[Rule]:
    ports: dict[tuple[str, _Body], set[int]] = {}
    for (host, port), methods in seen.requests():
        for body in _bodies(methods):
            ports.setdefault((host, body), set()).add(port)
    yield from _rules((host, (_ranges(found), body)) for (host, body), found in ports.items())


def _bodies(methods: dict[str, set[str]]) -> Iterator[_Body]:
    """Methods and paths of the rules for one host and port: methods with the same paths share a rule."""
    by_path: dict[str, list[str]] = {}
    for method in sorted(methods):
        for pattern in path_patterns(methods[method]):
            by_path.setdefault(pattern, []).append(method)
    together: dict[tuple[str, ...], list[str]] = {}
    for path, allowed in by_path.items():
        together.setdefault(tuple(allowed), []).append(path)
    for allowed_together, paths in together.items():
        yield allowed_together, tuple(sorted(paths))


def _rules(found: Iterable[tuple[str, _Group]]) -> Iterator[Rule]:
    """A rule for all hosts of a group; names and addresses get separate rules."""
    groups: dict[tuple[bool, _Group], list[str]] = {}
    for host, group in found:
        groups.setdefault(("/" in host, group), []).append(host)
    for (ranged, (ports, (methods, paths))), hosts in sorted(
        groups.items(), key=lambda group: (group[0][0], sorted(group[1]))
    ):
        for some in _parts(sorted(hosts)):
            yield Rule(
                hosts=() if ranged else some,
                addresses=some if ranged else (),
                ports=ports,
                methods=methods,
                paths=paths,
            )


def _parts(hosts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(hosts), MOST_IN_RULE):
        yield tuple(hosts[at : at + MOST_IN_RULE])


def _ranges(ports: set[int]) -> tuple[int | str, ...]:
    """Ports as a rule lists them: three or more in a row as a range."""
    listed: list[int | str] = []
    for first, last in ports_of(Rule(ports=tuple(ports))):
        listed += [f"{first}-{last}"] if last - first > 1 else range(first, last + 1)
    return tuple(listed)


def _families(names: Sequence[str]) -> Iterator[str]:
    """Where one pattern would stand for many names."""
    below: dict[str, int] = {}
    for name in names:
        for suffix in suffixes(name)[:1]:
            below[suffix] = below.get(suffix, 0) + 1
    for suffix, count in below.items():
        if count > _MANY_NAMES and "." in suffix:
            yield f"{count} names below {suffix} were seen; *.{suffix} would cover them and every other"
