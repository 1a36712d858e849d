"""Turns E2B's ``network`` into an egress policy of atoll."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from atoll.host import is_this_host
from atoll.policy import closed, plain, plain_host
from atoll.protocol import AGENT_PORT
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.destinations import Destinations, Range, destinations_of
from atoll.server.e2b.transforms import Change, changes_of, covers
from atoll.server.e2b.wire import EgressProxy, Network
from atoll.types import HOST_NAME, EgressPolicy, Policy, Rule, UpstreamProxy

_HOST = re.compile(r"[A-Za-z0-9.:_${}\[\]-]+")
# the most patterns of a rule with changes
_PATTERNS_MOST = 900


def egress_of(
    network: Network | None, allow_internet: bool | None, opened: Sequence[Range] = ()
) -> EgressPolicy:
    """Return the policy asked for.

    Args:
        network: The client's network.
        allow_internet: The flag beside it.
        opened: Ranges that are not public, which clients may allow.

    Raises:
        Refusal: The request is invalid (400), or asks for more than this server supports (501).
    """
    asked = network or Network()
    _check(asked)
    places = destinations_of(
        asked.allow_out or (),
        asked.deny_out or (),
        nothing_else=False in (allow_internet, asked.allow_internet_access),
        opened=opened,
    )
    changes = changes_of(asked.rules)
    proxy = _proxy(asked.egress_proxy) if asked.egress_proxy is not None else None
    if places == Destinations(denies_rest=True):
        return "none"
    if places == Destinations() and not changes and proxy is None:
        return "internet"
    if proxy is not None and places.denied:
        # the proxy resolves names, so nobody here knows which of them lead there
        raise Refusal(501, "denyOut of less than everything is not supported beside an egressProxy")
    return Policy(rules=tuple(_rules(places, changes, resolved=proxy is None)), proxy=proxy)


def mask_of(network: Network | None) -> str | None:
    """Return the host of requests that programs inside should see.

    Raises:
        Refusal: The value cannot be a host.
    """
    mask = network.mask_request_host if network is not None else None
    if mask and not _HOST.fullmatch(mask):
        raise Refusal(400, "invalid maskRequestHost")
    return mask or None


def _rules(places: Destinations, changes: Sequence[Change], *, resolved: bool) -> Iterator[Rule]:
    """Return the rules, each of which can match. They have addresses only if names are ``resolved`` here.

    A change never grants access. So it has a rule in each place where a later rule allows: among the allowed
    names, among the allowed addresses, and in the rest.
    """
    taken: list[str] = []
    plain_names: list[str] = []
    everywhere: list[Change] = []
    for change in changes:
        covered = _covered(change.host, places.names)
        if not covered:
            everywhere.append(change)
        hosts = [change.host] if covered else [one for one in places.names if covers(change.host, one)]
        hosts = [host for host in hosts if not _covered(host, taken)]
        taken += hosts
        if not change.changes:
            plain_names += hosts
        if hosts:
            yield change.rule(tuple(hosts))
    # no rule of a name alone leads to addresses that are not public
    for addresses in _parts(places.private) if resolved else ():
        yield from (change.rule((change.host,), addresses) for change in changes)
    for addresses in _parts(places.public) if resolved else ():
        yield from (change.rule((change.host,), addresses) for change in everywhere)
    names = tuple(name for name in places.names if not _covered(name, plain_names))
    if names:
        yield Rule(name="allowOut", hosts=names)
    yield from (
        Rule(name="allowOut", addresses=addresses) for addresses in _parts((*places.public, *places.private))
    )
    yield from (
        Rule(action="deny", name="denyOut", addresses=addresses) for addresses in _parts(places.denied)
    )
    if not places.denies_rest:
        yield from (change.rule((change.host,)) for change in everywhere)
        yield Rule(name="the rest")


def _parts(ranges: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [ranges[at : at + _PATTERNS_MOST] for at in range(0, len(ranges), _PATTERNS_MOST)]


def _covered(pattern: str, by: Iterable[str]) -> bool:
    return any(covers(one, pattern) for one in by)


def _proxy(asked: EgressProxy) -> UpstreamProxy:
    wrong = Refusal(400, f"invalid egress proxy address {asked.address}")
    host, _, port = asked.address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535) or not _is_public(host):
        raise wrong
    if asked.tls is not None and asked.tls.enabled:
        raise Refusal(501, "TLS to the egress proxy is not supported by this server yet")
    if asked.password and not asked.username:
        raise Refusal(400, "the egress proxy has a password and no username")
    user = quote(asked.username, safe="") if asked.username else ""
    if asked.password:
        user += f":{quote(asked.password, safe='')}"
    return UpstreamProxy(url=f"socks5://{user}@{host}:{port}" if user else f"socks5://{host}:{port}")


def _is_public(host: str) -> bool:
    """Whether a proxy may be there. The program that connects judges the addresses of a name."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (":" in bare) == (bare == host):  # an IPv6 address has brackets, and nothing else does
        return False
    try:
        address = plain(bare)
        return closed(address) is None and not is_this_host(str(address))
    except ValueError:
        name = plain_host(bare)
        return name not in (None, HOST_NAME, "localhost") and not str(name).endswith(".localhost")


def _check(asked: Network) -> None:
    for server in asked.dns_servers or ():
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            raise Refusal(400, f"invalid DNS server {server}") from None
    for port in asked.https_ports or ():
        if not 1 <= port <= 65_535 or port == AGENT_PORT:
            raise Refusal(400, f"invalid port {port}")
