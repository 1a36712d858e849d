"""Recognizes this host's own addresses."""

from __future__ import annotations

import ipaddress
import socket
import struct

_HEADER = struct.Struct("=IHHII")
# struct rtmsg: the family first, then the bits of the destination; the kind of route is the eighth.
_ROUTE = struct.Struct("=BBBBBBBBI")
_GET_ROUTE, _ERROR, _REQUEST = 26, 2, 1
_DESTINATION = 1
_LOCAL, _ANYCAST = 2, 4
_ANSWER_BYTES = 4096


def is_this_host(address: str) -> bool:
    """Whether a connection to an address ends at this host, by the kernel's current routes.

    So this includes all addresses of all interfaces, and any other address routed to this host. A connection
    from outside to such an address passes the firewall in front of the host; a connection from here would
    not.
    """
    to = ipaddress.ip_address(address)
    if to.is_unspecified:  # a connection there leads to the loopback interface
        return True
    family = socket.AF_INET if to.version == 4 else socket.AF_INET6
    body = _ROUTE.pack(family, to.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    body += struct.pack("=HH", 4 + len(to.packed), _DESTINATION) + to.packed
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _GET_ROUTE, _REQUEST, 0, 0) + body)
        answer = kernel.recv(_ANSWER_BYTES)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _ERROR:  # there is no route
        return False
    route: int = _ROUTE.unpack_from(answer, _HEADER.size)[7]
    return route in (_LOCAL, _ANYCAST)
