"""The pair of interfaces between a link's two namespaces, with addresses, routes and counters."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from atoll.network import netlink
from atoll.network.addresses import (
    GATEWAY_ADDRESS,
    GATEWAY_HARDWARE,
    GUEST_ADDRESS,
    GUEST_HARDWARE,
    GUEST_INTERFACE,
    INTERFACE_INDEX,
    OUTER_INTERFACE,
    PREFIX_BITS,
)
from atoll.network.netlink import (
    ACK,
    CREATE,
    EXCLUSIVE,
    REPLACE,
    Message,
    NetlinkSocket,
    attribute,
    nested,
    text,
)

_NEW_LINK = 16
_GET_LINK = 18
_NEW_ADDRESS = 20
_DELETE_ADDRESS = 21
_NEW_ROUTE = 24
_NEW_NEIGHBOUR = 28

_IFF_UP = 1
# Of a TCP segment: Ethernet, IPv4, and TCP with the options that Linux uses.
_HEADERS_BYTES = 14 + 20 + 32
_LINK_ADDRESS, _LINK_NAME, _LINK_MTU, _LINK_INFO, _LINK_STATS, _LINK_FAMILIES = 1, 3, 4, 18, 23, 26
_LINK_STATE, _LINK_NETNS_FD, _LINK_GSO_BYTES = 16, 28, 41
_STATE_UP = b"\x06"
_UP_TIMEOUT_S = 30.0
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_INET6_ADDRESS_MODE, _NO_ADDRESSES = 8, b"\x01"
_ADDRESS_ADDRESS, _ADDRESS_LOCAL = 1, 2
_ROUTE_GATEWAY, _TABLE_MAIN, _PROTOCOL_BOOT, _SCOPE_UNIVERSE, _UNICAST = 5, 254, 3, 0, 1
_NEIGHBOUR_ADDRESS, _NEIGHBOUR_HARDWARE, _PERMANENT = 1, 2, 0x80


def lay(inner_fd: int) -> None:
    """Make the pair: one end in the calling thread's namespace, the other in the one of ``inner_fd``.

    Raises:
        OSError: The kernel refused it.
    """
    peer = nested(
        _VETH_PEER,
        _interface(),
        text(_LINK_NAME, GUEST_INTERFACE),
        attribute(_LINK_ADDRESS, GUEST_HARDWARE),
        attribute(_LINK_NETNS_FD, struct.pack("=I", inner_fd)),
    )
    body = (
        _interface()
        + text(_LINK_NAME, OUTER_INTERFACE)
        + attribute(_LINK_ADDRESS, GATEWAY_HARDWARE)
        + nested(_LINK_INFO, text(_INFO_KIND, "veth"), nested(_INFO_DATA, peer))
    )
    made = Message(_NEW_LINK, ACK | CREATE | EXCLUSIVE, body)
    with NetlinkSocket(netlink.ROUTE) as kernel:
        kernel.change([made, *_end(GATEWAY_ADDRESS, GUEST_ADDRESS, GUEST_HARDWARE)])


def address_guest() -> None:
    """Set the address and default route of the guest's end, in the calling thread's namespace. Idempotent.

    Raises:
        OSError: The kernel refused it.
    """
    with NetlinkSocket(netlink.ROUTE) as kernel:
        kernel.change([*_end(GUEST_ADDRESS, GATEWAY_ADDRESS, GATEWAY_HARDWARE), _default_route()])


def await_up(kernel: NetlinkSocket) -> None:
    """Wait until the outer end sends: it has a carrier before that, and drops packets meanwhile.

    Linux 6.8 and later brings it up at once, earlier versions a few milliseconds later. ``kernel`` was
    opened in the outer namespace.

    Raises:
        OSError: The pair is gone, or does not come up.
    """
    end_s = time.monotonic() + _UP_TIMEOUT_S
    while dict(_described(kernel))[_LINK_STATE] != _STATE_UP:
        if time.monotonic() > end_s:
            raise TimeoutError(errno.ETIMEDOUT, f"{OUTER_INTERFACE} is not up after {_UP_TIMEOUT_S:.0f} s")
        time.sleep(0.001)


def forget_guest(kernel: NetlinkSocket) -> None:
    """Undo ``address_guest``. ``kernel`` was opened in the guest's namespace. Idempotent.

    Raises:
        OSError: The kernel refused it.
    """
    try:
        kernel.change([Message(_DELETE_ADDRESS, ACK, _address(GUEST_ADDRESS))])
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def sizes(kernel: NetlinkSocket) -> tuple[int, int]:
    """Return the interface's largest packet and its largest segmented send, in bytes.

    Raises:
        OSError: The pair is gone.
    """
    found = {kind: value for kind, value in _described(kernel) if kind in (_LINK_MTU, _LINK_GSO_BYTES)}
    mtu, gso_bytes = (
        struct.unpack("=I", found[kind])[0] if kind in found else 0 for kind in (_LINK_MTU, _LINK_GSO_BYTES)
    )
    return mtu, gso_bytes


def traffic(kernel: NetlinkSocket) -> tuple[int, int]:
    """Return the bytes that the guest has received and sent.

    ``kernel`` was opened in the outer namespace and reads the counters there.

    Raises:
        OSError: The pair is gone.
    """
    _, _, received, sent = _counters(kernel)
    return sent, received


def payload_bytes(kernel: NetlinkSocket) -> int:
    """Return the bytes that the guest has received and sent, without headers; ``kernel`` is as in ``traffic``.

    A keepalive and an empty acknowledgement have none.

    Raises:
        OSError: The pair is gone.
    """
    packets_in, packets_out, bytes_in, bytes_out = _counters(kernel)
    # Their sum may decrease: packets of other protocols have smaller headers.
    return bytes_in + bytes_out - _HEADERS_BYTES * (packets_in + packets_out)


def received_payload_bytes(kernel: NetlinkSocket) -> int:
    """Return the bytes that the guest has received, without headers; see ``payload_bytes``.

    Raises:
        OSError: The pair is gone.
    """
    _, packets, _, received = _counters(kernel)
    return received - _HEADERS_BYTES * packets


def _described(kernel: NetlinkSocket) -> Iterator[tuple[int, bytes]]:
    """The attributes of the interface."""
    (body,) = kernel.ask(Message(_GET_LINK, 0, _interface()))
    return netlink.attributes(body[16:])


def _counters(kernel: NetlinkSocket) -> tuple[int, int, int, int]:
    """The packets received and sent by the outer interface, then the bytes."""
    for kind, value in _described(kernel):
        if kind == _LINK_STATS:
            packets_in, packets_out, bytes_in, bytes_out = struct.unpack_from("=4Q", value)
            return packets_in, packets_out, bytes_in, bytes_out
    raise OSError(f"the kernel does not count the traffic of {OUTER_INTERFACE}")


def _end(own: str, other: str, other_hardware: bytes) -> list[Message]:
    messages = [
        Message(_NEW_ADDRESS, ACK | CREATE | REPLACE, _address(own)),
        Message(_NEW_LINK, ACK, _interface(_IFF_UP)),
        # Set from the start: a guest that is not up yet is then simply silent.
        Message(
            _NEW_NEIGHBOUR,
            ACK | CREATE | REPLACE,
            struct.pack("=BxxxIHBB", socket.AF_INET, INTERFACE_INDEX, _PERMANENT, 0, 0)
            + attribute(_NEIGHBOUR_ADDRESS, socket.inet_aton(other))
            + attribute(_NEIGHBOUR_HARDWARE, other_hardware),
        ),
    ]
    if Path("/proc/net/if_inet6").exists():
        quiet = nested(_LINK_FAMILIES, nested(socket.AF_INET6, attribute(_INET6_ADDRESS_MODE, _NO_ADDRESSES)))
        messages.insert(0, Message(_NEW_LINK, ACK, _interface() + quiet))
    return messages


def _address(own: str) -> bytes:
    return (
        struct.pack("=BBBBI", socket.AF_INET, PREFIX_BITS, 0, _SCOPE_UNIVERSE, INTERFACE_INDEX)
        + attribute(_ADDRESS_LOCAL, socket.inet_aton(own))
        + attribute(_ADDRESS_ADDRESS, socket.inet_aton(own))
    )


def _default_route() -> Message:
    table = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _PROTOCOL_BOOT, _SCOPE_UNIVERSE, _UNICAST, 0
    )
    return Message(
        _NEW_ROUTE,
        ACK | CREATE | REPLACE,
        table + attribute(_ROUTE_GATEWAY, socket.inet_aton(GATEWAY_ADDRESS)),
    )


def _interface(flags: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, INTERFACE_INDEX, flags, flags)
