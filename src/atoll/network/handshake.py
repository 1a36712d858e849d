"""What is said to an upstream proxy before it connects, and what its answers mean. There is no I/O here.

A handshake is a generator. It yields what is to be sent, or which bytes it needs next, and gets these. It takes
none that belong to the connection behind the proxy: the server there may speak first.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import struct
from collections.abc import Generator
from dataclasses import dataclass

from atoll.policy import ProxyAddress

LONGEST_HEAD_BYTES = 16 * 1024
_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r\n")
_VERSION, _LOGIN_VERSION, _CONNECT = 5, 1, 1
_NO_LOGIN, _LOGIN, _NONE_SUITS = 0, 2, 0xFF
_V4, _NAME, _V6 = 1, 3, 4
_REPLIES = {
    1: "it has failed",
    2: "its rules do not allow it",
    3: "the network cannot be reached",
    4: "the host cannot be reached",
    5: "the connection was refused",
    6: "it took too long",
    7: "it does not know the command",
    8: "it does not know the kind of address",
}


class ProxyError(OSError):
    """An upstream proxy does not connect. The text has nothing that the proxy can choose, and no password."""


@dataclass(frozen=True)
class Send:
    """These bytes are to be sent."""

    data: bytes


@dataclass(frozen=True)
class Exactly:
    """So many bytes are needed."""

    count: int


@dataclass(frozen=True)
class Until:
    """What comes up to an end is needed, with the end: so many bytes at most."""

    end: bytes
    most: int


Step = Send | Exactly | Until
Handshake = Generator[Step, bytes, None]


def handshake(proxy: ProxyAddress, host: str, port: int) -> Handshake:
    """Have a proxy connect to a host, by its name or its address.

    Raises:
        ProxyError: The proxy refuses, or answers something else.
    """
    return _connect(proxy, host, port) if proxy.scheme == "http" else _socks5(proxy, host, port)


def _connect(proxy: ProxyAddress, host: str, port: int) -> Handshake:
    """CONNECT of HTTP, as in RFC 9110."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.user:
        login = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    yield Send("\r\n".join([*lines, "", ""]).encode("ascii"))
    left = LONGEST_HEAD_BYTES
    while left > 0:
        head = yield Until(_END, left)
        left -= len(head)
        found = _STATUS.match(head)
        if found is None:
            raise ProxyError("it does not answer as a proxy of HTTP does")
        status = int(found[1])
        if 200 <= status < 300:
            return
        if status == 407:
            raise ProxyError("it does not take the user and password (407)")
        if status >= 200 or status == 101:
            raise ProxyError(f"it answers {status}")
    raise ProxyError("its answer is too long")


def _socks5(proxy: ProxyAddress, host: str, port: int) -> Handshake:
    """SOCKS5, as in RFC 1928, with the login of RFC 1929."""
    methods = bytes([_NO_LOGIN, _LOGIN] if proxy.user else [_NO_LOGIN])
    yield Send(bytes([_VERSION, len(methods)]) + methods)
    version, method = yield Exactly(2)
    if version != _VERSION:
        raise ProxyError("it does not answer as a proxy of SOCKS5 does")
    if method == _NONE_SUITS:
        raise ProxyError("it wants another login than it is given")
    if method not in methods:
        raise ProxyError("it chooses a login that was not offered")
    if method == _LOGIN:
        user, password = proxy.user.encode(), proxy.password.encode()
        yield Send(bytes([_LOGIN_VERSION, len(user)]) + user + bytes([len(password)]) + password)
        version, status = yield Exactly(2)
        if version != _LOGIN_VERSION or status != 0:
            raise ProxyError("it does not take the user and password")
    yield Send(bytes([_VERSION, _CONNECT, 0]) + _destination(host) + struct.pack(">H", port))
    version, reply, _, kind = yield Exactly(4)
    if version != _VERSION:
        raise ProxyError("it does not answer as a proxy of SOCKS5 does")
    if reply != 0:
        raise ProxyError(_REPLIES.get(reply, f"it answers {reply}"))
    if kind == _NAME:
        (length,) = yield Exactly(1)
    elif kind in (_V4, _V6):
        length = 4 if kind == _V4 else 16
    else:
        raise ProxyError("it names an address of an unknown kind")
    yield Exactly(length + 2)


def _destination(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return bytes([_NAME, len(name)]) + name
    return bytes([_V4 if address.version == 4 else _V6]) + address.packed
