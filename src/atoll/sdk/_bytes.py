"""Sizes and conversions of data that passes through the SDK."""

from __future__ import annotations

from collections.abc import Iterator, Set

from atoll.errors import InvalidSpecError
from atoll.types.internal import check_text

CHUNK_BYTES = 65536
MIB = 1 << 20
GIB = 1 << 30


def as_bytes(data: bytes | bytearray | memoryview | str) -> bytes:
    """Return text as UTF-8, and bytes as they are.

    Raises:
        InvalidSpecError: The value is something else. (``bytes`` would turn a number into zeroes.)
    """
    if isinstance(data, str):
        return check_text("the text", data)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidSpecError(f"data of type {type(data).__name__} cannot be sent", hint="give bytes or str")
    return bytes(data)


def check_upload(data: object) -> None:
    """Refuse a value that has no bytes to send, before anything is sent.

    Raises:
        InvalidSpecError: The value cannot be sent; the message names its type.
    """
    if isinstance(data, (list, tuple)):
        for piece in data:
            as_bytes(piece)
    # what has keys would be sent as its keys, and a set in any order
    is_other = isinstance(data, (Set, type)) or (hasattr(data, "keys") and not hasattr(data, "read"))
    if is_other or not any(hasattr(data, each) for each in ("read", "__iter__", "__aiter__", "__getitem__")):
        hint = "give text, bytes, a file opened for reading, or an iterable of them"
        raise InvalidSpecError(f"data of type {type(data).__name__} cannot be sent", hint=hint)


def sliced(data: bytes) -> Iterator[bytes]:
    """Cut bytes into pieces of a size that suits sockets."""
    view = memoryview(data)
    for start in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])
