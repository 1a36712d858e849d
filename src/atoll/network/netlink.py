"""Netlink: messages to and from the kernel's network configuration."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ROUTE = 0
SOCK_DIAG = 4
NETFILTER = 12

REQUEST = 0x001
ACK = 0x004
REPLACE = 0x100
DUMP = 0x300
EXCLUSIVE = 0x200
CREATE = 0x400
APPEND = 0x800

_HEADER = struct.Struct("=IHHII")
_ERROR = 2
_DONE = 3
_NESTED = 0x8000
_TYPE_MASK = 0x3FFF
_RECEIVE_BYTES = 1 << 18


@dataclass(frozen=True)
class Message:
    """A message: its type, its flags besides REQUEST, and its body after the header."""

    kind: int
    flags: int
    body: bytes


def attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Encode an attribute that holds attributes."""
    return attribute(kind | _NESTED, b"".join(attributes))


def text(kind: int, value: str) -> bytes:
    """Encode a zero-terminated string attribute."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and value of each attribute in ``data``."""
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & _TYPE_MASK, data[at + 4 : at + length]
        at += length + (-length % 4)


def encode(messages: Sequence[Message]) -> bytes:
    """Encode messages one after the other, numbered from 0."""
    return b"".join(
        _HEADER.pack(_HEADER.size + len(message.body), message.kind, message.flags | REQUEST, number, 0)
        + message.body
        + bytes(-len(message.body) % 4)
        for number, message in enumerate(messages)
    )


class NetlinkSocket(contextlib.AbstractContextManager["NetlinkSocket"]):
    """A conversation with the kernel about the network namespace of the thread that opened it, for good.

    Args:
        protocol: ROUTE, SOCK_DIAG or NETFILTER.

    Raises:
        OSError: The kernel does not support that protocol.
    """

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        # Only a broken kernel leaves a request without an answer; then an error is better than a hang.
        self._socket.settimeout(30)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation."""
        self._socket.close()

    def change(self, messages: Sequence[Message]) -> None:
        """Send messages together and wait until each that asks for an ACK has it.

        Raises:
            OSError: The kernel refused one; later ones may have been carried out.
        """
        self._socket.send(encode(messages))
        missing = {number for number, message in enumerate(messages) if message.flags & ACK}
        while missing:
            for number, _kind, _body in self._received():
                missing.discard(number)

    def ask(self, message: Message) -> list[bytes]:
        """Send one message and return the bodies of the answers: one, or with DUMP all of them.

        Raises:
            OSError: The kernel refused it.
        """
        self._socket.send(encode([message]))
        bodies: list[bytes] = []
        while True:
            for _number, kind, body in self._received():
                if kind == _DONE:
                    return bodies
                bodies.append(body)
            if not message.flags & DUMP:
                return bodies

    def _received(self) -> Iterator[tuple[int, int, bytes]]:
        data = self._socket.recv(_RECEIVE_BYTES)
        at = 0
        while at < len(data):
            length, kind, _flags, number, _port = _HEADER.unpack_from(data, at)
            body = data[at + _HEADER.size : at + length]
            if kind == _ERROR:
                code = -struct.unpack_from("=i", body)[0]
                if code:
                    raise OSError(code, os.strerror(code), f"netlink message {number}")
            yield number, kind, body
            at += length + (-length % 4)
