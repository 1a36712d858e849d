"""Addresses that are not public. A sandbox reaches them only by a rule that names them."""

from __future__ import annotations

import functools
import ipaddress
from bisect import bisect_right
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# atoll's own list, not `ipaddress.is_private`: that includes the documentation ranges, into which some
# gateways resolve public names on purpose.
_CLOSED_V4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers and clouds",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "metadata",
    "169.254.0.0/16": "link-local and metadata",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments and metadata",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarks",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved and broadcast",
}
_CLOSED_V6 = {
    "::/96": "unspecified, loopback and old IPv4-compatible",
    "::ffff:0:0:0/96": "IPv4 in translation",
    "64:ff9b:1::/48": "local translation",
    "100::/64": "discard",
    "2001::/23": "protocol assignments, Teredo and benchmarks",
    "2002::/16": "6to4",
    "fc00::/7": "private and metadata",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
CLOSED = {**_CLOSED_V4, **_CLOSED_V6}
"""Each range that is not public, with its description."""

# No rule opens these: they hold no peer that a sandbox may talk to.
_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "127.0.0.0/8",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "ff00::/8",
    )
)
_V4 = [IPv4Network(text) for text in _CLOSED_V4]
_V6 = [IPv6Network(text) for text in _CLOSED_V6]
# First and last address of each range with its description, in order, without overlaps.
_ENDS = {
    networks[0].version: sorted((int(one[0]), int(one[-1]), CLOSED[str(one)]) for one in networks)
    for networks in (_V4, _V6)
}
_FIRSTS = {version: [first for first, _, _ in ends] for version, ends in _ENDS.items()}
# Addresses that carry an IPv4 address in their last four bytes.
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
_CARRIED = frozenset(int(carrier[0]) >> 32 for carrier in _CARRIERS)


@functools.lru_cache(maxsize=4096)
def plain(address: str) -> Address:
    """Return the address, or the IPv4 address that it carries.

    Raises:
        ValueError: The text is no address, or has a zone, which means something on one host only.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, IPv4Address):
        return parsed
    if parsed.scope_id is not None:
        raise ValueError(f"{address!r} has a zone")
    if int(parsed) >> 32 in _CARRIED:
        return IPv4Address(parsed.packed[-4:])
    return parsed


def network_of(text: str) -> Network:
    """Return a range of addresses.

    Raises:
        ValueError: The text is no range.
    """
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return ipaddress.ip_network(text)


def closed(address: Address) -> str | None:
    """Return the kind of the address's range, if it is not public."""
    bits = int(address)
    at = bisect_right(_FIRSTS[address.version], bits) - 1
    if at < 0:
        return None
    _, last, reason = _ENDS[address.version][at]
    return reason if bits <= last else None


def never_open(network: Network) -> bool:
    """Whether the range has addresses that no rule may open, such as the host's loopback interface."""
    return any(network.overlaps(other) for other in _NEVER if network.version == other.version)


def touches_closed(network: Network) -> bool:
    """Whether the range has addresses that are not public."""
    return any(network.overlaps(other) for other in _ranges(network))


def only_closed(network: Network) -> bool:
    """Whether the range lies in one that is not public. A rule opens such a range only by naming it."""
    return any(network.subnet_of(other) for other in _ranges(network))  # type: ignore[arg-type]


def carries_ipv4(network: Network) -> bool:
    """Whether the range has addresses that are judged as the IPv4 addresses which they carry."""
    return any(network.overlaps(other) for other in _CARRIERS if network.version == other.version)


def _ranges(network: Network) -> list[Network]:
    return [*_V4] if network.version == 4 else [*_V6]
