"""Which registries clients of the server may name: none on this machine or in its own network."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from atoll.server.answers import Refusal

_HUB = "docker.io"
_INSIDE = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::/127",
        "fc00::/7",
        "fe80::/10",
    )
]
_RESOLVE_S = 10.0


def registry_of(reference: str) -> tuple[str, int]:
    """Host and port of the registry that an image's name means."""
    first, slash, _ = reference.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        return _HUB, 443
    host, colon, port = first.rpartition(":")
    if colon and port.isdigit() and not first.endswith("]"):
        return host.strip("[]"), int(port)
    return first.strip("[]"), 443


async def refuse_inside(reference: str) -> None:
    """Refuse a name whose registry is on this machine or in its network: whoever runs the server may map such names.

    Raises:
        Refusal: It is (400).
    """
    host, port = registry_of(reference)
    refusal = Refusal(400, f"Images of the registry '{host[:64]}' are not open to clients of this server")
    try:
        async with asyncio.timeout(_RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        # whoever pulls it says what is wrong with the name; a name that is none is inside nothing
        return
    for *_, address in found:
        if _is_inside(str(address[0])):
            raise refusal


def _is_inside(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in _INSIDE if network.version == address.version)
