"""What the first bytes of a guest's connection say about where it really wants to go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_RECORD_BYTES = 5
LONGEST_BYTES = 1 << 16
_LONGEST_LINE = 8192
# No client begins like this, and some servers go on as if it were plain TLS. A guest
# could ask for another name than its rules allow. Each has a range for each byte.
_DISGUISES = (
    # A warning, or an empty change of ciphers, before the greeting: Go skips a warning.
    ((20, 21), (3, 3), (0, 4), (0, 0), (1, 4), (1, 1)),
    # A greeting in the form of SSL 2: OpenSSL takes it.
    ((0x80, 0xFF), (0, 0xFF), (1, 1), (3, 3)),
)
# The method and the blank after it, or less. Servers take any method, and many take it in lower case.
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}([ \t\v\f]|\Z)")
# The edge has the same patterns (policy/firstbytes.go): what goes there as HTTP must be HTTP there, too.
_HTTP_LINE = re.compile(rb"[^ \t\v\f]+[ \t\v\f].*[ \t\v\f]HTTP/\d", re.DOTALL | re.IGNORECASE)
# HTTP/0.9 names a host only in a URL.
_SHORT_LINE = re.compile(
    rb"[^ \t\v\f]+[ \t\v\f]+[a-z][a-z0-9+.-]*://[^ \t\v\f]*[ \t\v\f\r]*\Z", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class FirstBytes:
    """What a connection begins with.

    Args:
        kind: ``more`` means that ``wanted`` bytes are needed to tell.
        wanted: How many bytes from the beginning are needed.
        server_name: The name in a TLS greeting; None if it has none.
        hides_name: Whether the greeting may hide another name (ECH).
        is_line: Whether it may be sent on after a moment, such as a line of text that has not ended yet.
    """

    kind: Literal["more", "tls", "http", "other", "invalid"]
    wanted: int = 0
    server_name: str | None = None
    hides_name: bool = False
    is_line: bool = False


def read_first_bytes(data: bytes) -> FirstBytes:
    """Tell what a connection is that begins with these bytes. There is at least one."""
    if data[0] == _HANDSHAKE:
        return _read_tls(data)
    for ranges in _DISGUISES:
        if all(first <= byte <= last for byte, (first, last) in zip(data, ranges, strict=False)):
            if len(data) >= len(ranges):
                return FirstBytes("invalid")
            return FirstBytes("more", wanted=len(data) + 1, is_line=True)
    return _read_line(data)


def _read_line(data: bytes) -> FirstBytes:
    """Tell whether this is a request of HTTP, also of HTTP/2. Servers skip empty lines before it."""
    text = data.lstrip(b"\r\n")
    if text and not _METHOD.match(text):
        return FirstBytes("other")
    line, newline, _ = text.partition(b"\n")
    if newline:
        return FirstBytes("http" if _HTTP_LINE.match(line) or _SHORT_LINE.match(line) else "other")
    # A line that long is nothing that a server of another protocol would read either.
    if len(data) > _LONGEST_LINE:
        return FirstBytes("invalid")
    return FirstBytes("more", wanted=len(data) + 1, is_line=True)


def _read_tls(data: bytes) -> FirstBytes:
    greeting = b""
    at = 0
    while len(greeting) < 4 or len(greeting) < 4 + int.from_bytes(greeting[1:4]):
        if at + _RECORD_BYTES > len(data):
            return FirstBytes("more", wanted=at + _RECORD_BYTES)
        length = int.from_bytes(data[at + 3 : at + 5])
        end = at + _RECORD_BYTES + length
        if data[at] != _HANDSHAKE or data[at + 1] != 3 or not length or end > LONGEST_BYTES:
            return FirstBytes("invalid")
        if end > len(data):
            return FirstBytes("more", wanted=end)
        greeting += data[at + _RECORD_BYTES : end]
        if greeting[0] != _CLIENT_HELLO:
            return FirstBytes("invalid")
        at = end
    try:
        return _read_greeting(_Reader(greeting[4 : 4 + int.from_bytes(greeting[1:4])]))
    except (IndexError, UnicodeDecodeError):
        return FirstBytes("invalid")


class _Reader:
    """Reads a TLS structure. Reading past its end is an IndexError."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        if count > len(self.data):
            raise IndexError
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, size: int) -> int:
        """Return a number of this many bytes."""
        return int.from_bytes(self.take(size))

    def block(self, size: int) -> _Reader:
        """Return what follows a length of this many bytes."""
        return _Reader(self.take(self.number(size)))


def _read_greeting(hello: _Reader) -> FirstBytes:
    hello.take(2 + 32)
    hello.block(1)
    hello.block(2)
    hello.block(1)
    server_name: str | None = None
    hides_name = False
    extensions = hello.block(2) if hello.data else _Reader(b"")
    while extensions.data:
        kind, body = extensions.number(2), extensions.block(2)
        if kind == _ENCRYPTED_HELLO:
            hides_name = True
        elif kind == _SERVER_NAME:
            if server_name is not None:
                return FirstBytes("invalid")
            names = body.block(2)
            while names.data:
                name_kind, name = names.number(1), names.block(2).data
                if name_kind == 0 and server_name is not None:
                    return FirstBytes("invalid")
                if name_kind == 0:
                    server_name = name.decode("ascii")
    return FirstBytes("tls", server_name=server_name, hides_name=hides_name)
