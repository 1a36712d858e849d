"""Refuses policies that mean nothing, or something other than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from atoll.errors import InvalidSpecError
from atoll.policy.hosts import ANY, plain_host, plain_pattern
from atoll.policy.internal import is_internal
from atoll.policy.masks import Names
from atoll.policy.ports import port_ranges
from atoll.policy.proxies import is_loopback_name, is_sealed, proxy_address, within
from atoll.policy.ranges import (
    carries_ipv4,
    closed,
    network_of,
    never_open,
    only_closed,
    plain,
    touches_closed,
)
from atoll.policy.shadow import shadowed
from atoll.types import Inject, Policy, RateLimit, Rule, UpstreamProxy
from atoll.types.internal import ASK_DEADLINE_MOST_S, PLACEHOLDER

MOST_RULES = 1000
MOST_PATTERNS = 1000
MOST_PATTERNS_IN_ALL = 20_000
MOST_COUNTED = 10**15
LONGEST_TEXT = 2048
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,128}")
_BRACES = frozenset("{}")
_PLACEHOLDER_HINT = "write {} for `secret`, {NAME} for another secret, and {{ and }} for braces"
# A tab is the one control character that a header may have.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# The bits of an IPv6 range that carries IPv4 addresses.
_CARRIED_BITS = 96
# Headers that would change the target or the end of a request.
_FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Fault(NamedTuple):
    """A fault of a policy, the number of the faulty rule, and a hint."""

    text: str
    hint: str
    rule: int | None = None


def check_policy(policy: Policy) -> None:
    """Check a policy as a whole.

    Raises:
        InvalidSpecError: A value is invalid, or a rule can never match; the message names the rule.
    """
    if (fault := fault_of(policy)) is not None:
        raise InvalidSpecError(fault.text, hint=fault.hint)


def fault_of(policy: Policy) -> Fault | None:
    """Return the first thing that is wrong with a policy."""
    return next(_all_faults(policy), None)


def _all_faults(policy: Policy) -> Iterator[Fault]:
    yield from _whole_faults(policy)
    for number, rule in enumerate(policy.rules):
        for text, hint in _faults(rule):
            yield Fault(f"{rule_name(policy, number)}: {text}", hint, number)
    for pattern in policy.passthrough:
        if plain_pattern(pattern) is None:
            yield Fault(f"passthrough has {pattern!r}, which is no host name", _NAME_HINT)
    yield from _proxy_faults(policy)
    yield from _dead_rules(policy)


def _dead_rules(policy: Policy) -> Iterator[Fault]:
    passed = Names()
    for pattern in policy.passthrough:
        passed.add(pattern, 1)
    for number, rule in enumerate(policy.rules):
        if (
            rule.inspects
            and rule.hosts
            and all(passed.covering(plain_pattern(host) or ANY) for host in rule.hosts)
        ):
            yield Fault(
                f"{rule_name(policy, number)} can never match: it is about requests, and passthrough has its hosts",
                "remove the hosts from passthrough, or make a rule without conditions on requests",
                number,
            )
    if (found := shadowed(policy)) is not None:
        late, early = found
        yield Fault(
            f"{rule_name(policy, late)} can never match: {rule_name(policy, early)} decides before it",
            "put the narrower rule first, or remove it",
            late,
        )


def _whole_faults(policy: Policy) -> Iterator[Fault]:
    if len(policy.rules) > MOST_RULES:
        yield Fault(f"the policy has {len(policy.rules)} rules", f"the most are {MOST_RULES}: use patterns")
    count = sum(map(pattern_count, policy.rules)) + len(policy.passthrough)
    if policy.proxy is not None:
        count += len(policy.proxy.hosts) + len(policy.proxy.addresses)
    if count > MOST_PATTERNS_IN_ALL:
        yield Fault(f"the policy has {count} patterns", f"the most are {MOST_PATTERNS_IN_ALL}")


_RANGE_HINT = "give one such as 10.1.0.0/16"
_NAME_HINT = "give a name, *.NAME for every name below it, or *"
_Fault = tuple[str, str]


def _faults(rule: Rule) -> Iterator[_Fault]:
    yield from _size_faults(rule)  # check sizes first: the others quote text, which must be short
    for pattern in rule.hosts:
        if plain_pattern(pattern) is None:
            yield f"{pattern!r} is no host name", _NAME_HINT + "; give addresses in `addresses`"
    yield from _address_faults(rule)
    try:
        port_ranges(rule.ports)
    except ValueError as error:
        yield str(error), 'give a number from 1 to 65535, or a range such as "8000-8100"'
    yield from _condition_faults(rule)
    yield from _ask_faults(rule)
    yield from _change_faults(rule)


def _address_faults(rule: Rule) -> Iterator[_Fault]:
    for text in rule.addresses:
        try:
            network = network_of(text)
        except ValueError:
            yield f"{text!r} is no range of addresses", _RANGE_HINT
            return
        if carries_ipv4(network) and network.prefixlen >= _CARRIED_BITS:
            yield f"{text} stands for IPv4 addresses", "give the range of IPv4"
        elif rule.may_pass and never_open(network):
            yield (
                f"{text} has addresses that no sandbox may reach",
                "leave `addresses` empty for every public address, or expose a port of the host with "
                "Policy.expose_host",
            )
        elif rule.may_pass and touches_closed(network) and not only_closed(network):
            yield (
                f"{text} has public addresses and others",
                "name the ranges that are not public by themselves, such as 10.0.0.0/8",
            )


def _ask_faults(rule: Rule) -> Iterator[_Fault]:
    if rule.ask is None:
        return
    if rule.action != "ask":
        yield f"it says how to ask, but its action is {rule.action}", 'give action = "ask"'
    if not 1 <= rule.ask.deadline_s <= ASK_DEADLINE_MOST_S:
        yield f"its deadline_s is {rule.ask.deadline_s}", f"give seconds from 1 to {ASK_DEADLINE_MOST_S}"
    if rule.ask.approvals not in (1, 2):
        yield f"its approvals are {rule.ask.approvals}", "give 1 or 2"


def _change_faults(rule: Rule) -> Iterator[_Fault]:
    if rule.changes and not rule.may_pass:
        yield (
            f"it changes requests, but its action is {rule.action}",
            "only requests that pass can be changed",
        )
    for name in (*rule.set_headers, *rule.remove_headers, *rule.headers):
        if not _TOKEN.fullmatch(name):
            yield f"{name!r} is no name of a header", "give one such as x-team"
    for name in (*rule.set_headers, *rule.remove_headers):
        if name.lower() in _FRAMING:
            yield f"the header {name} cannot be changed", "atoll sets it itself"
    for name, value in rule.set_headers.items():
        if _CONTROL.search(value):
            yield f"the value of the header {name} has a control character", "give one line of text"
    for inject in rule.inject:
        yield from _inject_faults(rule, inject)
    if rule.limit is not None:
        yield from _limit_faults(rule.limit)


def _inject_faults(rule: Rule, inject: Inject) -> Iterator[_Fault]:
    yield from _format_faults(inject)
    told = f"the secret {', '.join(inject.secrets)}"
    if not rule.hosts or ANY in rule.hosts:
        yield f"it sends {told} to any host", "name the hosts that may get it"
    if not inject.key:
        yield f"{told} has no key", "say which header, parameter or field it goes into"
    if inject.into in ("header", "basic") and _CONTROL.search(inject.format + inject.key):
        yield f"{told} is sent with a control character", "give one line of text"
    if inject.into == "basic" and ":" in inject.key:
        yield f"the user name {inject.key!r} has a colon", "it ends where the password begins"
    if inject.into == "header" and (not _TOKEN.fullmatch(inject.key) or inject.key.lower() in _FRAMING):
        yield f"{told} cannot go into the header {inject.key!r}", "use another header"


def _format_faults(inject: Inject) -> Iterator[_Fault]:
    if inject.secret and not _SECRET.fullmatch(inject.secret):
        yield f"{inject.secret!r} is no name of a secret", "use letters, digits, - and _"
    told = f"the format {inject.format!r}"
    if not _BRACES.isdisjoint(PLACEHOLDER.sub("", inject.format)):
        yield f"{told} has a brace that begins or ends no placeholder", "write {{ for { and }} for }"
    names = inject.secrets
    for name in names:
        if not name:
            yield f"{told} has {{}}, and no secret is given", "name the secret in `secret`, or as {NAME}"
        elif not _SECRET.fullmatch(name):
            yield f"{told} has {{{name}}}, which is no name of a secret", _PLACEHOLDER_HINT
    if not names or (inject.secret and inject.secret not in names):
        yield f"{told} has no place for the secret {inject.secret}".rstrip(), _PLACEHOLDER_HINT


def _limit_faults(limit: RateLimit) -> Iterator[_Fault]:
    if not 0 < limit.per_s <= MOST_COUNTED:  # neither inf nor nan
        yield f"per_s is {limit.per_s:g}", "give seconds above 0"
    for name in ("requests", "bytes_s", "total_bytes"):
        if (value := getattr(limit, name)) is not None and not 1 <= value <= MOST_COUNTED:
            yield f"{name} is {value}", f"give 1 to {MOST_COUNTED:,}, or use a deny rule"


def pattern_count(rule: Rule) -> int:
    """How many patterns and values a rule has."""
    lists, maps = _lists(rule)
    injected = len(rule.set_headers) + len(rule.inject)
    return sum(map(len, lists)) + sum(map(len, maps)) + injected


def _lists(rule: Rule) -> tuple[list[tuple[object, ...]], list[Mapping[str, tuple[str, ...]]]]:
    lists: list[tuple[object, ...]] = [rule.hosts, rule.addresses, rule.ports, rule.methods, rule.paths]
    maps: list[Mapping[str, tuple[str, ...]]] = [rule.query, rule.headers, rule.json]
    if rule.mcp is not None:
        lists += [rule.mcp.methods, rule.mcp.tools]
        maps.append(rule.mcp.arguments)
    return [*lists, rule.remove_headers, *(texts for values in maps for texts in values.values())], maps


def _texts(rule: Rule) -> Iterator[str]:
    lists, maps = _lists(rule)
    yield rule.name
    yield from (str(text) for values in lists for text in values)
    yield from (key for values in maps for key in values)
    yield from rule.set_headers.values()
    for inject in rule.inject:
        yield from (inject.key, inject.format)


def _size_faults(rule: Rule) -> Iterator[_Fault]:
    if pattern_count(rule) > MOST_PATTERNS:
        yield f"it has more than {MOST_PATTERNS} patterns", "make several rules of it"
    if long := next((text for text in _texts(rule) if len(text) > LONGEST_TEXT), None):
        yield f"{long[:40]!r}… is too long", f"the most are {LONGEST_TEXT} characters"


def _condition_faults(rule: Rule) -> Iterator[_Fault]:
    for path in rule.paths:
        if not path.startswith(("/", "*")):
            yield f"the path {path!r} can never match", "paths begin with /"
    for method in rule.methods:
        if not _TOKEN.fullmatch(method) or method != method.upper():
            yield f"{method!r} is no HTTP method", "methods are in upper case"
    if rule.max_body_bytes is not None and not 0 <= rule.max_body_bytes <= MOST_COUNTED:
        yield f"max_body_bytes is {rule.max_body_bytes}", f"give 0 to {MOST_COUNTED:,}"


def _proxy_faults(policy: Policy) -> Iterator[Fault]:
    if policy.proxy is None:
        return
    proxy = policy.proxy
    for pattern in proxy.hosts:
        if plain_pattern(pattern) is None:
            yield Fault(f"the proxy has {pattern!r}, which is no host name", _NAME_HINT)
    for text in proxy.addresses:
        try:
            network = network_of(text)
        except ValueError:
            yield Fault(f"the proxy has {text!r}, which is no range of addresses", _RANGE_HINT)
            return
        if network.num_addresses > 1 and not only_closed(network):
            yield Fault(
                f"the proxy has {text!r}, which has public addresses",
                "open just where the proxy is: " + _RANGE_HINT,
            )
    try:
        place = proxy_address(proxy)
        if is_sealed(proxy):
            raise ValueError("its password is one that is stored sealed")
    except ValueError as error:
        yield Fault(
            f"the proxy's address is invalid: {error}",
            "give http://HOST:PORT or socks5://USER:PASSWORD@HOST:PORT",
        )
        return
    yield from _place_faults(place.host, proxy.addresses)
    yield from _unresolved_faults(policy, proxy)


def _place_faults(host: str, addresses: tuple[str, ...]) -> Iterator[Fault]:
    """The faults of a proxy's place, as far as its name or address tells."""
    if plain_host(host) is None:
        why = closed(plain(host))
        if why is not None and not within(host, addresses):
            yield Fault(f"the proxy is at {host}, which is {why}", f'open it with addresses = ["{host}"]')
    elif is_internal(host) or is_loopback_name(host):
        yield Fault(
            f"the proxy is at {host}, which has no address here",
            'give 127.0.0.1, and addresses = ["127.0.0.1"]',
        )


def _unresolved_faults(policy: Policy, proxy: UpstreamProxy) -> Iterator[Fault]:
    """The faults of rules with addresses for names that the proxy resolves, out of sight of atoll."""
    hint = "leave the rule's addresses out, or give the proxy hosts that the rule does not have"
    for number, rule in enumerate(policy.rules):
        if not rule.addresses:
            continue
        if rule.may_pass:
            if rule.hosts and all(_through(proxy, host) for host in rule.hosts):
                text = "can never match: the proxy resolves its hosts, so their addresses are not known"
                yield Fault(f"{rule_name(policy, number)} {text}", hint, number)
        elif not rule.hosts or any(_meets(proxy, host) for host in rule.hosts):
            text = "refuses addresses of names that the proxy resolves, so they are not known"
            yield Fault(f"{rule_name(policy, number)} {text}", hint, number)


def _through(proxy: UpstreamProxy, host: str) -> bool:
    """Whether the proxy connects to every name that a pattern matches."""
    return not proxy.hosts or _cover(proxy.hosts, host)


def _meets(proxy: UpstreamProxy, host: str) -> bool:
    """Whether the proxy connects to some name that a pattern matches."""
    return _through(proxy, host) or any(_cover((host,), one) for one in proxy.hosts)


def _cover(patterns: tuple[str, ...], host: str) -> bool:
    names = Names()
    for pattern in patterns:
        names.add(pattern, 1)
    return bool(names.covering(plain_pattern(host) or ANY))


def rule_name(policy: Policy, number: int) -> str:
    """A rule's name for people: its number counted from 1, and its own name if it has one."""
    name = policy.rules[number].name
    return f"rule {number + 1} ({name})" if name else f"rule {number + 1}"
