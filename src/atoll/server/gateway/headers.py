"""Decides which headers of a request or an answer are passed on, and which concern only one connection."""

from __future__ import annotations

import re
from collections.abc import Iterable

from atoll.protocol import LINK

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"}
    | {b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"}
)
# The gateway sets or reads these itself: framing, the client's identity, and server keys that a guest must
# never see.
_OURS = frozenset(
    {b"host", b"content-length", b"expect", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"}
    | {b"forwarded", b"x-real-ip", b"x-api-key", b"e2b-traffic-access-token"}
)
_HANDSHAKE = frozenset(
    {b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions", b"sec-websocket-protocol"}
    | {b"sec-websocket-accept"}
)

# Servers that give headers as variables read X_Forwarded_For, and some also X.Forwarded.For, as X-Forwarded-For.
_READ_AS = bytes(byte if chr(byte).isalnum() and byte < 128 else ord("-") for byte in range(256))
_SET_COOKIE = b"set-cookie"
_LINK_COOKIE = re.compile(rb"[=\s]*(__Host-)?" + re.escape(LINK.encode()) + rb"\s*(=|;|$)")


def _listed(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """Return the headers that ``Connection`` declares to be for the next hop only."""
    return {
        name.strip().lower()
        for header, value in headers
        if header == b"connection"
        for name in value.split(b",")
    }


def to_guest(headers: Headers, *, without: frozenset[bytes] = frozenset()) -> Headers:
    """Return the headers of a client's request that a server inside sees."""
    dropped = _HOP_BY_HOP | _OURS | _HANDSHAKE | without | _listed(headers)
    return [(name, value) for name, value in headers if name.translate(_READ_AS) not in dropped]


def to_client(headers: Headers) -> Headers:
    """Return the headers of an answer that the client sees, without its length.

    A server inside sets no cookie of the gateway's own: false ones would hide a viewer's right one.
    """
    dropped = _HOP_BY_HOP | _HANDSHAKE | {b"content-length"} | _listed(headers)
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and not (name == _SET_COOKIE and _LINK_COOKIE.match(value))
    ]


def forwarded(peer: str, scheme: str, host: bytes) -> Headers:
    """Return headers that tell servers about the client. The client's own such headers are not trusted."""
    return [
        (b"x-forwarded-for", peer.encode("latin-1", errors="replace")),
        (b"x-forwarded-proto", scheme.encode()),
        (b"x-forwarded-host", host),
    ]


def spelled(headers: Headers) -> Headers:
    """Return headers in the spelling that HTTP/1.1 has for names, such as ``Content-Type``.

    The HTTP server does not show how the client wrote them.
    """
    return [(b"-".join(part.capitalize() for part in name.split(b"-")), value) for name, value in headers]


def head(method: str, target: bytes, headers: Headers) -> bytes:
    """Return the bytes of a request's head.

    Raises:
        ValueError: A part contains a byte that could start another field.
    """
    lines = [
        method.encode("ascii") + b" " + target + b" HTTP/1.1",
        *(b": ".join(pair) for pair in spelled(headers)),
    ]
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise ValueError("a header has an invalid byte")
    if b" " in target or not target.isascii():
        raise ValueError("the request's target is invalid")
    return b"\r\n".join(lines) + b"\r\n\r\n"
