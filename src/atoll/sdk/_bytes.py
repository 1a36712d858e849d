"""Sizes and conversions of what passes through the SDK."""

from __future__ import annotations

from collections.abc import Iterator

CHUNK_BYTES = 65536
MIB = 1 << 20
GIB = 1 << 30


def as_bytes(data: bytes | bytearray | memoryview | str) -> bytes:
    """Text as UTF-8, bytes as they are."""
    return data.encode() if isinstance(data, str) else bytes(data)


def sliced(data: bytes) -> Iterator[bytes]:
    """The bytes in pieces of a size that suits sockets."""
    view = memoryview(data)
    for start in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])
