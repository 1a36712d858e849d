"""The guest's end of a link, opened for the guest's own network stack as gVisor's start does it."""

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
# The forced option needs a right, the ordinary option does not.
_BUFFERS = ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF))
_BUFFER_BYTES = 4 << 20
_SIOCETHTOOL, _ETHTOOL_GGSO = 0x8946, 0x23


@dataclass(frozen=True)
class OpenUplink:
    """A packet socket for packets to the guest, and the abilities of its interface.

    ``gso_bytes`` is the most bytes to send at once, with PACKET_VNET_HDR headers; 0 means without these.
    """

    socket: socket.socket
    mtu: int
    gso_bytes: int


def open_uplink() -> OpenUplink:
    """Take the guest's interface, in the calling thread's namespace, and remove the host's address from it.

    Raises:
        OSError: The kernel refused it.
    """
    with NetlinkSocket(netlink.ROUTE) as kernel:
        veth.forget_guest(kernel)
        mtu, gso_bytes = veth.sizes(kernel)
    # The protocol is set only when the socket is bound to the interface, which saves a wait in the kernel.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        opened.bind((GUEST_INTERFACE, _ALL_PROTOCOLS))
        if not _segments(opened):
            gso_bytes = 0
        else:
            opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        # With the default size packets are lost at a high rate.
        for forced, option in _BUFFERS:
            try:
                opened.setsockopt(socket.SOL_SOCKET, forced, _BUFFER_BYTES)
            except PermissionError:  # some kernels require more than an ordinary user's namespace gives
                opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    except BaseException:
        opened.close()
        raise
    return OpenUplink(opened, mtu, gso_bytes)


def _segments(opened: socket.socket) -> bool:
    """Whether the interface accepts packets that must be split on the way."""
    value = array("I", [_ETHTOOL_GGSO, 0])
    request = struct.pack("@16sP16x", GUEST_INTERFACE.encode(), value.buffer_info()[0])
    fcntl.ioctl(opened, _SIOCETHTOOL, request)
    return value[1] != 0
