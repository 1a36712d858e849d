"""Describes a guest's network to an engine."""

from __future__ import annotations

from atoll.engines import Uplink
from atoll.network import (
    GATEWAY_ADDRESS,
    GATEWAY_HARDWARE,
    GUEST_ADDRESS,
    GUEST_HARDWARE,
    GUEST_INTERFACE,
    PREFIX_BITS,
    OpenUplink,
)


def uplink_of(opened: OpenUplink) -> Uplink:
    """The interface of an open link; its socket stays the caller's."""
    return Uplink(
        socket_fd=opened.socket.fileno(),
        name=GUEST_INTERFACE,
        mtu=opened.mtu,
        gso_bytes=opened.gso_bytes,
        hardware=GUEST_HARDWARE,
        address=GUEST_ADDRESS,
        prefix_bits=PREFIX_BITS,
        gateway=GATEWAY_ADDRESS,
        gateway_hardware=GATEWAY_HARDWARE,
    )
