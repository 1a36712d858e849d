"""The guest's end of a link, opened for the guest's own network stack: gVisor's start does the same by itself."""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from dataclasses import dataclass

from atoll.network import netlink, veth
from atoll.network.addresses import GUEST_INTERFACE
from atoll.network.netlink import NetlinkSocket

_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
# To be forced, which takes a right, and to be asked for.
_BUFFERS = ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF))
_BUFFER_BYTES = 4 << 20
_SIOCETHTOOL, _ETHTOOL_GGSO = 0x8946, 0x23


@dataclass(frozen=True)
class OpenUplink:
    """A packet socket that has what the guest is sent, and what the interface can do.

    ``gso_bytes`` is the most that can be sent at once, with headers of PACKET_VNET_HDR; 0 is without them.
    """

    socket: socket.socket
    mtu: int
    gso_bytes: int


def open_uplink() -> OpenUplink:
    """Take the guest's interface, in the calling thread's namespace: the host has no address on it any more.

    Raises:
        OSError: The kernel refused it.
    """
    with NetlinkSocket(netlink.ROUTE) as kernel:
        veth.forget_guest(kernel)
        mtu, gso_bytes = veth.sizes(kernel)
    # Bound to a protocol only with the interface, which spares the kernel a wait.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        opened.bind((GUEST_INTERFACE, _ALL_PROTOCOLS))
        if not _segments(opened):
            gso_bytes = 0
        else:
            opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        # A bigger one than programs get without asking: else packets are lost at a high rate.
        for forced, option in _BUFFERS:
            try:
                opened.setsockopt(socket.SOL_SOCKET, forced, _BUFFER_BYTES)
            except PermissionError:  # of an ordinary user's namespace some kernels want more
                opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    except BaseException:
        opened.close()
        raise
    return OpenUplink(opened, mtu, gso_bytes)


def _segments(opened: socket.socket) -> bool:
    """Whether the interface takes what is to be cut into packets by whoever sends it on."""
    value = array("I", [_ETHTOOL_GGSO, 0])
    request = struct.pack("@16sP16x", GUEST_INTERFACE.encode(), value.buffer_info()[0])
    fcntl.ioctl(opened, _SIOCETHTOOL, request)
    return value[1] != 0
