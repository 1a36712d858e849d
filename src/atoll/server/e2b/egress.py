"""What a sandbox may reach, as E2B's clients ask for it.

So far it is all or nothing; the rest is refused clearly.
"""

from __future__ import annotations

import ipaddress
import re

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.wire import Network
from atoll.types import EgressPolicy

EVERYTHING = "0.0.0.0/0"
_DOMAIN = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.?"
)
_HOST = re.compile(r"[A-Za-z0-9.:_${}\[\]-]+")


def egress_of(network: Network | None, allow_internet: bool | None) -> EgressPolicy:
    """Return the policy asked for, if it is all or nothing.

    Raises:
        Refusal: The request is invalid (400), or asks for more than this server supports (501).
    """
    asked = network or Network()
    _check(asked)
    if asked.rules:
        raise Refusal(501, "network rules (request transforms) are not supported by this server yet")
    if asked.egress_proxy is not None:
        raise Refusal(501, "an egress proxy is not supported by this server yet")
    if asked.https_ports:
        raise Refusal(501, "httpsPorts are not supported by this server yet")
    flags = (allow_internet, asked.allow_internet_access)
    allowed, denied = set(asked.allow_out or ()), set(asked.deny_out or ())
    if EVERYTHING in allowed:
        return "internet"
    if allowed or denied - {EVERYTHING}:
        raise Refusal(
            501,
            "allowOut and denyOut of single destinations are not supported by this server yet: "
            f"allow the internet, or deny it as a whole with {EVERYTHING}",
        )
    return "none" if denied or False in flags else "internet"


def mask_of(network: Network | None) -> str | None:
    """Return what programs inside should see as the host of requests.

    Raises:
        Refusal: The value cannot be a host.
    """
    mask = network.mask_request_host if network is not None else None
    if mask and not _HOST.fullmatch(mask):
        raise Refusal(400, "invalid maskRequestHost")
    return mask or None


def _check(asked: Network) -> None:
    for address in asked.deny_out or ():
        if not _is_network(address):
            raise Refusal(400, f"invalid denied CIDR {address}")
    for address in asked.allow_out or ():
        if not _is_network(address) and not _DOMAIN.fullmatch(address.lower()):
            raise Refusal(400, f"invalid allowed address {address}")
    domains = [address for address in asked.allow_out or () if not _is_network(address)]
    if domains and EVERYTHING not in (asked.deny_out or ()):
        raise Refusal(400, f"allowOut with a domain ({domains[0]}) needs denyOut to contain {EVERYTHING}")
    for server in asked.dns_servers or ():
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            raise Refusal(400, f"invalid DNS server {server}") from None
    for port in asked.https_ports or ():
        if not 1 <= port <= 65_535:
            raise Refusal(400, f"invalid port {port}")


def _is_network(address: str) -> bool:
    try:
        ipaddress.ip_network(address, strict=False)
    except ValueError:
        return False
    return True
