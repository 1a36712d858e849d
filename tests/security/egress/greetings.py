"""Greetings of TLS, as honest clients and others make them."""

from __future__ import annotations

import ssl

import pytest


def greeting(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """The same greeting in records of at most this size."""
    body = hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece for piece in pieces)


def with_extension(hello: bytes, kind: int) -> bytes:
    """The same greeting with one more, empty extension at its end."""
    added = kind.to_bytes(2) + b"\0\0"
    body = hello[9:]
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    length = int.from_bytes(body[at : at + 2]) + len(added)
    body = body[:at] + length.to_bytes(2) + body[at + 2 :] + added
    handshake = b"\x01" + len(body).to_bytes(3) + body
    return hello[:3] + len(handshake).to_bytes(2) + handshake
