"""Reads JSON and plain values as types: the one module that asks msgspec for it.

msgspec learns a type at its first use. Another thread that uses the half-learned type dies of a segmentation
fault. So this module learns types under a lock, and no other module may call msgspec for this (ruff's
banned-api).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

_Value = TypeVar("_Value")
_learning = threading.RLock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
# Texts that are no UTF-8, and values in values in values: msgspec lets these errors through.
_ALSO_WRONG = (UnicodeDecodeError, RecursionError)
# A child of fork has no thread that would finish what it began to learn.
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(
        before=_learning.acquire, after_in_parent=_learning.release, after_in_child=_learning.release
    )


@overload
def from_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[_Value]) -> _Value: ...
@overload
def from_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: Any = Any) -> Any: ...
def from_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: Any = Any) -> Any:
    """Read JSON as a value of ``kind``; without it, as dicts, lists, texts and numbers.

    Raises:
        msgspec.DecodeError: It is not JSON, or not of that kind.
    """
    try:
        return _decoder(kind).decode(data)
    except _ALSO_WRONG as error:
        raise msgspec.DecodeError(str(error)) from None


@overload
def converted(value: object, kind: type[_Value], *, strict: bool = True) -> _Value: ...
@overload
def converted(value: object, kind: Any, *, strict: bool = True) -> Any: ...
def converted(value: object, kind: Any, *, strict: bool = True) -> Any:
    """Return dicts, lists, texts and numbers as a value of ``kind``.

    Args:
        strict: Whether a text is no number. False reads it as one.

    Raises:
        msgspec.ValidationError: It is not of that kind.
    """
    _decoder(kind)
    return msgspec.convert(value, kind, strict=strict)


def msgpack_reader(kind: Any) -> Callable[[bytes], Any]:
    """Return a function that reads MessagePack as a value of ``kind``. It raises ``msgspec.DecodeError``."""
    with _learning:
        decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except _ALSO_WRONG as error:
            raise msgspec.DecodeError(str(error)) from None

    return read


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        with _learning:
            found = _decoders[kind] = msgspec.json.Decoder(kind)
    return found
