"""Decides whether a sandbox may connect to an address. No other code decides this."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from atoll.types import EgressPolicy

# atoll's own list, not `ipaddress.is_private`: that includes the documentation ranges, into which some
# gateways resolve public names on purpose.
_REFUSED_V4 = {
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
_REFUSED_V6 = {
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
REFUSED = {**_REFUSED_V4, **_REFUSED_V6}

_V4 = [(IPv4Network(text), reason) for text, reason in _REFUSED_V4.items()]
_V6 = [(IPv6Network(text), reason) for text, reason in _REFUSED_V6.items()]
# Addresses that carry an IPv4 address in their last four bytes.
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))


@dataclass(frozen=True)
class Refusal:
    """The reason why a connection is refused."""

    reason: str


def decide(policy: EgressPolicy, address: str, port: int) -> Refusal | None:
    """Return why a sandbox under ``policy`` must not connect to ``address``, or None if it may.

    Args:
        policy: ``"none"`` refuses everything; ``"internet"`` refuses every address that is not public.
        address: What the name was resolved to, never a name.
        port: All ports are treated alike so far; 0 is no port.
    """
    if policy == "none":
        return Refusal("the sandbox has no network")
    if not 0 < port < 65536:
        return Refusal(f"{port} is not a port")
    return _refuse(_plain(ipaddress.ip_address(address)))


def decide_here(policy: EgressPolicy, address: str, port: int) -> Refusal | None:
    """Decide like ``decide``, and also refuse this host's own public addresses.

    A connection to them from outside passes the firewall in front of the host; one from here would not.
    """
    refusal = decide(policy, address, port)
    if refusal is None and _is_own(address):
        return Refusal(f"{address} is this host")
    return refusal


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv6Address) and any(address in carrier for carrier in _CARRIERS):
        return IPv4Address(address.packed[-4:])
    return address


def _refuse(address: IPv4Address | IPv6Address) -> Refusal | None:
    if isinstance(address, IPv4Address):
        reasons = [reason for network, reason in _V4 if address in network]
    else:
        reasons = [reason for network, reason in _V6 if address in network]
    return Refusal(f"{address} is {reasons[0]}") if reasons else None


def _is_own(address: str) -> bool:
    # Connecting a datagram socket sends nothing. If the address is the host's own, the kernel picks it as the
    # source.
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False
        return bool(ipaddress.ip_address(probe.getsockname()[0]) == ipaddress.ip_address(address))
