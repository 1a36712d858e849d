"""Refuses policies that mean nothing, or not what they seem to."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

from atoll.errors import InvalidSpecError
from atoll.policy.hosts import plain_pattern
from atoll.policy.judge import rule_name
from atoll.policy.ports import port_ranges
from atoll.policy.ranges import never_open
from atoll.policy.shadow import shadowed
from atoll.types import Inject, Policy, RateLimit, Rule

MOST_RULES = 1000
MOST_PATTERNS = 1000
LONGEST_TEXT = 2048
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,128}")
_PROXY = re.compile(r"(http|socks5)://([^\s/@]*@)?[^\s/@:]+:\d{1,5}/?")
# What would change where a request goes or where it ends.
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


def check_policy(policy: Policy) -> None:
    """Check a policy as a whole.

    Raises:
        InvalidSpecError: A value is invalid, or a rule can never match; the message names the rule.
    """
    if len(policy.rules) > MOST_RULES:
        raise InvalidSpecError(
            f"the policy has {len(policy.rules)} rules", hint=f"the most are {MOST_RULES}: use patterns"
        )
    for number, rule in enumerate(policy.rules):
        for fault, hint in _faults(rule):
            raise InvalidSpecError(f"{rule_name(policy, number)}: {fault}", hint=hint)
    for pattern in policy.passthrough:
        if plain_pattern(pattern) is None:
            raise InvalidSpecError(f"passthrough has {pattern!r}, which is no host name", hint=_NAME_HINT)
    _check_proxy(policy)
    if (found := shadowed(policy)) is not None:
        late, early = found
        raise InvalidSpecError(
            f"{rule_name(policy, late)} can never match: {rule_name(policy, early)} decides before it",
            hint="put the narrower rule first, or remove it",
        )


_NAME_HINT = "give a name, *.NAME for every name below it, or *"
_Fault = tuple[str, str]


def _faults(rule: Rule) -> Iterator[_Fault]:
    for pattern in rule.hosts:
        if plain_pattern(pattern) is None:
            yield f"{pattern!r} is no host name", _NAME_HINT + "; give addresses in `addresses`"
    yield from _address_faults(rule)
    try:
        port_ranges(rule.ports)
    except ValueError as error:
        yield str(error), 'give a number from 1 to 65535, or a range such as "8000-8100"'
    yield from _change_faults(rule)
    yield from _size_faults(rule)


def _address_faults(rule: Rule) -> Iterator[_Fault]:
    for text in rule.addresses:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            yield f"{text!r} is no range of addresses", "give one such as 10.1.0.0/16"
            return
        if rule.action == "allow" and never_open(network):
            yield (
                f"{text} has addresses that no sandbox may reach",
                "leave `addresses` empty for every public address, or expose a port of the host with "
                "Policy.expose_host",
            )


def _change_faults(rule: Rule) -> Iterator[_Fault]:
    if rule.changes and rule.action != "allow":
        yield f"it changes requests, but its action is {rule.action}", "only allowed requests can be changed"
    for name in (*rule.set_headers, *rule.remove_headers, *rule.headers):
        if not _TOKEN.fullmatch(name):
            yield f"{name!r} is no name of a header", "give one such as x-team"
    for name in (*rule.set_headers, *rule.remove_headers):
        if name.lower() in _FRAMING:
            yield f"the header {name} cannot be changed", "atoll sets it itself"
    for name, value in rule.set_headers.items():
        if any(char in value for char in "\r\n\0"):
            yield f"the value of the header {name} has a line break", "give one line"
    for inject in rule.inject:
        yield from _inject_faults(rule, inject)
    if rule.limit is not None:
        yield from _limit_faults(rule.limit)


def _inject_faults(rule: Rule, inject: Inject) -> Iterator[_Fault]:
    if not _SECRET.fullmatch(inject.secret):
        yield f"{inject.secret!r} is no name of a secret", "use letters, digits, - and _"
    if not rule.hosts:
        yield f"it sends the secret {inject.secret} to any host", "name the hosts that may get it"
    if inject.format.count("{}") != 1:
        yield f"the format of the secret {inject.secret} is {inject.format!r}", "give one with {} once"
    if not inject.key:
        yield f"the secret {inject.secret} has no key", "say which header, parameter or field it goes into"
    if inject.into == "header" and (not _TOKEN.fullmatch(inject.key) or inject.key.lower() in _FRAMING):
        yield f"the secret {inject.secret} cannot go into the header {inject.key!r}", "use another header"


def _limit_faults(limit: RateLimit) -> Iterator[_Fault]:
    if not limit.per_s > 0:
        yield f"per_s is {limit.per_s:g}", "give seconds above 0"
    for name in ("requests", "bytes_s", "total_bytes"):
        if (value := getattr(limit, name)) is not None and value < 1:
            yield f"{name} is {value}", "give 1 or more, or use a deny rule"


def _size_faults(rule: Rule) -> Iterator[_Fault]:
    lists = [rule.hosts, rule.addresses, rule.ports, rule.methods, rule.paths, rule.remove_headers]
    maps: list[Mapping[str, tuple[str, ...]]] = [rule.query, rule.headers, rule.json]
    if rule.mcp is not None:
        lists += [rule.mcp.methods, rule.mcp.tools]
        maps.append(rule.mcp.arguments)
    lists += [texts for values in maps for texts in values.values()]
    if sum(map(len, lists)) + sum(map(len, maps)) > MOST_PATTERNS:
        yield f"it has more than {MOST_PATTERNS} patterns", "make several rules of it"
    texts = [str(text) for values in lists for text in values] + [key for values in maps for key in values]
    texts += [rule.name, *rule.set_headers.values()]
    if long := next((text for text in texts if len(text) > LONGEST_TEXT), None):
        yield f"{long[:40]!r}… is too long", f"the most are {LONGEST_TEXT} characters"
    for path in rule.paths:
        if not path.startswith(("/", "*")):
            yield f"the path {path!r} can never match", "paths begin with /"
    for method in rule.methods:
        if not _TOKEN.fullmatch(method) or method != method.upper():
            yield f"{method!r} is no HTTP method", "methods are in upper case"
    if rule.max_body_bytes is not None and rule.max_body_bytes < 0:
        yield f"max_body_bytes is {rule.max_body_bytes}", "give 0 or more"


def _check_proxy(policy: Policy) -> None:
    if policy.proxy is None:
        return
    if not _PROXY.fullmatch(policy.proxy.url):
        # The address is not shown: it may have a password.
        raise InvalidSpecError(
            "the proxy's address is invalid", hint="give http://HOST:PORT or socks5://USER:PASSWORD@HOST:PORT"
        )
    for pattern in policy.proxy.hosts:
        if plain_pattern(pattern) is None:
            raise InvalidSpecError(f"the proxy has {pattern!r}, which is no host name", hint=_NAME_HINT)
