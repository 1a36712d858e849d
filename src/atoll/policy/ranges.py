"""Addresses that are not public. A sandbox reaches them only by a rule that names them."""

from __future__ import annotations

import functools
import ipaddress
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
"""Each range that is not public, with what it is."""

# No rule opens these: nothing that a sandbox may talk to is there.
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
_V4 = [(IPv4Network(text), reason) for text, reason in _CLOSED_V4.items()]
_V6 = [(IPv6Network(text), reason) for text, reason in _CLOSED_V6.items()]
# Addresses that carry an IPv4 address in their last four bytes.
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))


def plain(address: str) -> Address:
    """Return the address; the IPv4 address of one that carries it.

    Raises:
        ValueError: It is not an address.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, IPv6Address) and any(parsed in carrier for carrier in _CARRIERS):
        return IPv4Address(parsed.packed[-4:])
    return parsed


@functools.lru_cache(maxsize=4096)
def closed(address: Address) -> str | None:
    """Return what range the address is in, if it is not public."""
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _V4 if address in network), None)
    return next((reason for network, reason in _V6 if address in network), None)


def never_open(network: Network) -> bool:
    """Whether the range has addresses that no rule may open, such as the host's loopback interface."""
    return any(network.version == other.version and network.overlaps(other) for other in _NEVER)
