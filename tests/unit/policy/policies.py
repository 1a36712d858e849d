"""Random policies and destinations, and a judge that asks one rule after the other."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from atoll.policy import check_policy, closed, matches_host, plain, plain_pattern
from atoll.policy.ports import port_ranges
from atoll.policy.ranges import never_open, only_closed
from atoll.types import HOST_NAME, Policy, Rule

T = TypeVar("T")
# Few of each, so that rules and destinations meet often.
NAMES = ["a.example", "b.a.example", "c.b.a.example", "evila.example", "example", HOST_NAME, "x.internal"]
PATTERNS = [
    *NAMES,
    "*",
    "*.example",
    "*.a.example",
    "*.b.a.example",
    "*.internal",
    "*.atoll.internal",
    "A.Example.",
]
ADDRESSES = ["8.8.8.8", "8.8.9.9", "10.0.0.1", "10.9.0.1", "127.0.0.1", "169.254.169.254", "2606:4700::1"]
ADDRESSES += ["::1", "fd00::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"]
RANGES = ["8.8.8.0/24", "8.0.0.0/8", "8.8.8.8", "10.0.0.0/8", "10.0.0.0/16", "169.254.0.0/16", "2606::/16"]
RANGES += ["fd00::/8"]
OPEN_RANGES = [*RANGES, "0.0.0.0/0", "::/0", "8.0.0.0/5", "127.0.0.0/8"]
PORTS: list[int | str] = [22, 80, 443, "80-443", "1-65535", "400-500"]
SEEN_PORTS = [1, 22, 80, 81, 443, 450, 65535]


class Destination(NamedTuple):
    """What a guest connects to."""

    name: str | None
    address: str
    port: int


def some(values: list[T], most: int = 2) -> st.SearchStrategy[tuple[T, ...]]:
    """A few of the values, often none."""
    return st.lists(st.sampled_from(values), max_size=most, unique=True).map(tuple)


def rules(ranges: list[str] = RANGES) -> st.SearchStrategy[Rule]:
    """Rules of connections and of requests."""
    actions = st.sampled_from(["allow", "allow", "deny", "unplug"])
    return st.builds(
        Rule,
        action=actions,
        hosts=some(PATTERNS),
        addresses=some(ranges),
        ports=some(PORTS),
        protocol=st.sampled_from(["tcp", "tcp", "http"]),
        methods=some(["GET", "POST"], 1),
    )


def valid(policy: Policy) -> bool:
    """Whether the checks let it pass."""
    try:
        check_policy(policy)
    except ValueError:
        return False
    return True


POLICIES = st.builds(
    Policy,
    rules=st.lists(rules(OPEN_RANGES), max_size=6).map(tuple),
    mode=st.sampled_from(["enforce", "observe"]),
    passthrough=some(["a.example", "*.a.example", "*"], 1),
)
DESTINATIONS = st.builds(
    Destination, st.sampled_from([None, *NAMES]), st.sampled_from(ADDRESSES), st.sampled_from(SEEN_PORTS)
)


def fits(rule: Rule, to: Destination) -> bool:
    """Whether a rule matches a destination, by the words of the reference."""
    return _fits_host(rule, to.name) and _fits_port(rule, to.port) and _fits_address(rule, to)


def _fits_host(rule: Rule, name: str | None) -> bool:
    patterns = [plain_pattern(host) for host in rule.hosts]
    if name == HOST_NAME and rule.action == "allow":
        return name in patterns
    if not rule.hosts:
        return True
    return name is not None and any(matches_host(pattern or "", name) for pattern in patterns)


def _fits_port(rule: Rule, port: int) -> bool:
    ranges = port_ranges(rule.ports)
    if rule.inspects and not ranges:
        return port in (80, 443)
    return not ranges or any(first <= port <= last for first, last in ranges)


def _fits_address(rule: Rule, to: Destination) -> bool:
    address = plain(to.address)
    is_open = closed(address) is None or (to.name == HOST_NAME and address.is_loopback)
    around = [network for network in map(ipaddress.ip_network, rule.addresses) if address in network]
    if is_open or rule.action != "allow":
        return bool(around) or not rule.addresses
    return any(only_closed(network) and not never_open(network) for network in around)


def kept(policy: Policy, to: Destination) -> list[int]:
    """The rules that a destination matches, up to the first that decides without looking into requests."""
    passes = to.name is not None and any(matches_host(each, to.name) for each in policy.passthrough)
    found = []
    for number, rule in enumerate(policy.rules):
        if fits(rule, to) and not (passes and rule.inspects):
            found.append(number)
            if not rule.inspects:
                break
    return found
