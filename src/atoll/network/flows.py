"""The TCP connections that a guest believes to have, and how a restored guest learns that they are gone."""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from collections.abc import Iterable

import msgspec

from atoll.network import netlink
from atoll.network.addresses import DNS_PORT, GATEWAY_ADDRESS, GUEST_ADDRESS, RELAY_PORT
from atoll.network.netlink import ACK, DUMP, Message, NetlinkSocket

_DIAG_BY_FAMILY = 20
_DESTROY = 21
_ID_AT, _ID_BYTES = 4, 48
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT = 1, 4, 5, 8
_STATES = 1 << _ESTABLISHED | 1 << _FIN_WAIT1 | 1 << _FIN_WAIT2 | 1 << _CLOSE_WAIT
_ACK_FLAG = 0x10


class Flow(msgspec.Struct, frozen=True):
    """A connection between the guest's ``guest_port`` and ``port`` of ``address``, as the guest sees it."""

    guest_port: int
    address: str
    port: int


def dialled_flows() -> list[Flow]:
    """Return the connections that were dialled into the guest from the calling thread's namespace, an edge.

    Raises:
        OSError: The kernel cannot tell.
    """
    with NetlinkSocket(netlink.SOCK_DIAG) as kernel:
        found = [_ports(body) for body in _dialled(kernel)]
    return [Flow(theirs, GATEWAY_ADDRESS, ours) for ours, theirs in found]


def end_dialled(kernel: NetlinkSocket) -> int:
    """End the connections that were dialled into the guest, whoever holds their sockets now: both ends get an error.

    Args:
        kernel: A conversation of protocol SOCK_DIAG that was opened in the edge.

    Returns:
        How many there were.

    Raises:
        OSError: The kernel cannot do that.
    """
    bodies = _dialled(kernel)
    for body in bodies:
        socket_id = body[_ID_AT : _ID_AT + _ID_BYTES]
        # One that has just ended by itself is what was wanted.
        with contextlib.suppress(FileNotFoundError):
            kernel.change([Message(_DESTROY, ACK, _request(1 << body[1], socket_id))])
    return len(bodies)


def _dialled(kernel: NetlinkSocket) -> list[bytes]:
    bodies = kernel.ask(Message(_DIAG_BY_FAMILY, DUMP, _request(_STATES, bytes(_ID_BYTES))))
    return [body for body in bodies if _ports(body)[0] not in (RELAY_PORT, DNS_PORT)]


def _request(states: int, socket_id: bytes) -> bytes:
    return struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, states) + socket_id


def _ports(body: bytes) -> tuple[int, int]:
    ours, theirs = struct.unpack_from(">HH", body, _ID_AT)
    return ours, theirs


def challenge(flows: Iterable[Flow]) -> None:
    """Send one packet of each flow that cannot be right, from the calling thread's namespace, an edge.

    A guest that has the connection answers with what it expects instead, and the edge, which does not know
    the connection, answers that with a fitting reset. A guest that does not have it answers with a reset.

    Raises:
        OSError: The kernel lets no such packets be sent.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for flow in flows:
            raw.sendto(challenge_packet(flow, secrets.randbits(32), secrets.randbits(32)), (GUEST_ADDRESS, 0))


def challenge_packet(flow: Flow, sequence: int, acknowledged: int) -> bytes:
    """Return an IPv4 packet of ``flow`` from afar to the guest with these numbers and no data."""
    source, target = socket.inet_aton(flow.address), socket.inet_aton(GUEST_ADDRESS)
    segment = struct.pack(
        ">HHIIBBHHH", flow.port, flow.guest_port, sequence, acknowledged, 5 << 4, _ACK_FLAG, 0, 0, 0
    )
    pseudo = source + target + struct.pack(">HH", socket.IPPROTO_TCP, len(segment))
    checksum = struct.pack(">H", _checksum(pseudo + segment))
    header = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, socket.IPPROTO_TCP, 0, source, target
    )  # The kernel fills in the header's own checksum.
    return header + segment[:16] + checksum + segment[18:]


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
