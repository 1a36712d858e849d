"""Lists a guest's TCP connections, and tells a restored guest that its own are gone."""

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
# A closed socket may still have to deliver data in these states. In later ones the connection is over for
# both ends.
_SYN_RECEIVED, _LAST_ACK, _CLOSING = 3, 9, 11
_OPEN = _STATES | 1 << _SYN_RECEIVED | 1 << _LAST_ACK | 1 << _CLOSING
_HELD = 1 << _ESTABLISHED | 1 << _CLOSE_WAIT
# The attribute with a connection's ``tcp_info``, and the request for it. Read from it: the milliseconds since
# the last data sent, the last data received and the last acknowledgement; the numbers of data segments that
# came and went.
_DIAG_BYTES, _DIAG_INFO, _WITH_INFO = 72, 2, 1 << 1
_INFO = struct.Struct("=44xI4xII92xII")
# Each side sends again what nobody has acknowledged for 200 ms.
_ACKNOWLEDGED_MS = 150
_FROM_GUEST = (RELAY_PORT, DNS_PORT)
_ACK_FLAG = 0x10
_ANY_COOKIE = (1 << 64) - 1
_FEW = 16


class Flow(msgspec.Struct, frozen=True):
    """A connection between the guest's ``guest_port`` and ``port`` of ``address``, as the guest sees it."""

    guest_port: int
    address: str
    port: int


def dialled_flows() -> list[Flow]:
    """Return the connections that were dialled into the guest from the calling thread's namespace, an outer one.

    Raises:
        OSError: The kernel cannot list them.
    """
    with NetlinkSocket(netlink.SOCK_DIAG) as kernel:
        found = [_ports(body) for body in _dialled(kernel)]
    return [Flow(theirs, GATEWAY_ADDRESS, ours) for ours, theirs in found]


def open_connections() -> int:
    """Return how many connections the calling thread's namespace, an outer one, has with its guest.

    Raises:
        OSError: The kernel cannot list them.
    """
    with NetlinkSocket(netlink.SOCK_DIAG) as kernel:
        return len(kernel.ask(Message(_DIAG_BY_FAMILY, DUMP, _request(_OPEN, bytes(_ID_BYTES)))))


class Dialled:
    """The connections that were dialled into one guest.

    This records a few one by one, because the kernel lists a namespace's connections from a table of the
    whole host's.

    Args:
        kernel: A SOCK_DIAG conversation that was opened in the outer namespace.
        known: True if there are none yet; False if another process may have dialled.
    """

    def __init__(self, kernel: NetlinkSocket, *, known: bool) -> None:
        self._kernel = kernel
        self._ports: set[tuple[int, int]] | None = set() if known else None

    def note(self, own_port: int, port: int) -> None:
        """Record a connection from ``own_port`` to the guest's ``port``."""
        if self._ports is not None:
            self._ports.add((own_port, port))
            if len(self._ports) > _FEW:
                self._ports = None

    def end(self) -> None:
        """End them, whichever process has their sockets now: both ends get an error.

        Raises:
            OSError: The kernel cannot do that.
        """
        ports, self._ports = self._ports, None
        if ports is None:
            found = [body[_ID_AT : _ID_AT + _ID_BYTES] for body in _dialled(self._kernel)]
        else:
            found = [_socket_id(own_port, port) for own_port, port in ports]
        refusal: OSError | None = None
        for socket_id in found:
            try:
                self._kernel.change([Message(_DESTROY, ACK, _request(_STATES, socket_id))])
            except FileNotFoundError:
                pass  # it has already ended by itself
            except OSError as error:
                # Before Linux 6.0 this also happens for a connection without an owner. The others must still
                # be ended.
                refusal = error
        if refusal is not None and _dialled(self._kernel, _HELD):
            raise refusal
        self._ports = set()


def unanswered_s(kernel: NetlinkSocket, *, relayed: bool = True) -> float | None:
    """Return the seconds since the newest question that has no answer yet; None if there is none.

    A question is data that the asking side sent after the other side's last data. The client asks on a
    dialled connection, the guest on a connection to the outside. ``relayed=False`` leaves out connections of
    the relay. ``kernel`` was opened in the outer namespace.

    Raises:
        OSError: The kernel cannot list connections.
    """
    request = Message(_DIAG_BY_FAMILY, DUMP, _request(_HELD, bytes(_ID_BYTES), _WITH_INFO))
    bodies = [body for body in kernel.ask(request) if relayed or _ports(body)[0] != RELAY_PORT]
    ages = [age for body in bodies if (age := _unanswered_ms(body)) is not None]
    return min(ages) / 1000 if ages else None


def _unanswered_ms(body: bytes) -> int | None:
    info = next((value for kind, value in netlink.attributes(body[_DIAG_BYTES:]) if kind == _DIAG_INFO), b"")
    if len(info) < _INFO.size:
        return None
    sent_ms, received_ms, heard_ms, received, sent = _INFO.unpack_from(info)
    if _ports(body)[0] in _FROM_GUEST:
        return received_ms if received and (not sent or received_ms < sent_ms) else None
    # In one tick of the kernel's clock both times are the same. If a question came after an answer, its
    # acknowledgement comes a moment later. What comes later than that is an answer that a busy guest sends again,
    # or a keepalive.
    again = sent_ms == received_ms and 0 < received_ms - heard_ms < _ACKNOWLEDGED_MS
    return sent_ms if sent and (not received or sent_ms < received_ms or again) else None


def _dialled(kernel: NetlinkSocket, states: int = _STATES) -> list[bytes]:
    bodies = kernel.ask(Message(_DIAG_BY_FAMILY, DUMP, _request(states, bytes(_ID_BYTES))))
    return [body for body in bodies if _ports(body)[0] not in _FROM_GUEST]


def _request(states: int, socket_id: bytes, more: int = 0) -> bytes:
    return struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, more, states) + socket_id


def _socket_id(own_port: int, port: int) -> bytes:
    own, guest = socket.inet_aton(GATEWAY_ADDRESS), socket.inet_aton(GUEST_ADDRESS)
    return struct.pack(">HH4s12x4s12x4xQ", own_port, port, own, guest, _ANY_COOKIE)


def _ports(body: bytes) -> tuple[int, int]:
    ours, theirs = struct.unpack_from(">HH", body, _ID_AT)
    return ours, theirs


def challenger() -> socket.socket:
    """Make the socket that ``challenge`` sends with, in the calling thread's namespace, an outer one.

    Raises:
        OSError: The kernel does not allow such packets.
    """
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_INET, kind, socket.IPPROTO_RAW)


def challenge(raw: socket.socket, flows: Iterable[Flow]) -> None:
    """Send a packet of each flow with wrong numbers, on a socket from ``challenger``.

    A guest that has the connection answers with the numbers it expects. The outer namespace does not know the
    connection, and answers that with a matching reset. A guest without the connection answers with a reset.

    Raises:
        OSError: The kernel does not allow such packets.
    """
    for flow in flows:
        packet = challenge_packet(flow, secrets.randbits(32), secrets.randbits(32))
        with contextlib.suppress(BlockingIOError):  # a lost packet is sent again
            raw.sendto(packet, (GUEST_ADDRESS, 0))


def challenge_packet(flow: Flow, sequence: int, acknowledged: int) -> bytes:
    """Return an IPv4 packet of ``flow`` from the remote side to the guest, with these numbers and no data."""
    source, target = socket.inet_aton(flow.address), socket.inet_aton(GUEST_ADDRESS)
    segment = struct.pack(
        ">HHIIBBHHH", flow.port, flow.guest_port, sequence, acknowledged, 5 << 4, _ACK_FLAG, 0, 0, 0
    )
    pseudo = source + target + struct.pack(">HH", socket.IPPROTO_TCP, len(segment))
    checksum = struct.pack(">H", _checksum(pseudo + segment))
    header = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, socket.IPPROTO_TCP, 0, source, target
    )  # The kernel fills in the checksum of the header.
    return header + segment[:16] + checksum + segment[18:]


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
