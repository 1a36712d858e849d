"""DNS messages, as far as a forwarder needs to understand them."""

from __future__ import annotations

import struct

MALFORMED, SERVER_FAILED, NOT_IMPLEMENTED, REFUSED = 1, 2, 4, 5
UNWILLING = (SERVER_FAILED, NOT_IMPLEMENTED, REFUSED)

_HEADER = struct.Struct(">6H")
_RESPONSE, _OPCODE, _RECURSE, _RECURSION_AVAILABLE, _CODE = 0x8000, 0x7800, 0x0100, 0x0080, 0x000F
_LONGEST_NAME_BYTES = 255


def is_query(message: bytes) -> bool:
    """Whether this is a standard query with one question."""
    if len(message) < _HEADER.size:
        return False
    _, flags, questions, *_ = _HEADER.unpack_from(message)
    standard = questions == 1 and _question(message) is not None
    return standard and not flags & (_RESPONSE | _OPCODE)


def with_id(message: bytes, number: int) -> bytes:
    """Return the message with another id."""
    return struct.pack(">H", number) + message[2:]


def answers(query: bytes, reply: bytes) -> bool:
    """Whether ``reply`` has the id and the question of ``query``."""
    if len(reply) < _HEADER.size or reply[:2] != query[:2]:
        return False
    _, flags, questions, *_ = _HEADER.unpack_from(reply)
    if not flags & _RESPONSE:
        return False
    if not questions:
        return bool(flags & _CODE)
    return _same(_question(query), _question(reply))


def code(reply: bytes) -> int:
    """Return the response code of a reply."""
    return int(_HEADER.unpack_from(reply)[1] & _CODE)


def failure(query: bytes, response_code: int) -> bytes | None:
    """Return a negative answer, or None for a message that deserves no answer: a fragment or a response."""
    if len(query) < _HEADER.size:
        return None
    number, flags, *_ = _HEADER.unpack_from(query)
    if flags & _RESPONSE:
        return None
    question = _question(query) or b""
    kept = flags & (_OPCODE | _RECURSE) | _RESPONSE | _RECURSION_AVAILABLE | response_code
    return _HEADER.pack(number, kept, 1 if question else 0, 0, 0, 0) + question


def _question(message: bytes) -> bytes | None:
    at = _HEADER.size
    while at < len(message) and message[at]:
        if message[at] > 63:
            return None
        at += 1 + message[at]
    end = at + 5
    if end > len(message) or at + 1 - _HEADER.size > _LONGEST_NAME_BYTES:
        return None
    return message[_HEADER.size : end]


def _same(one: bytes | None, other: bytes | None) -> bool:
    # Names are equal in upper and lower case. That type and class are lowered too does no harm.
    return one is not None and other is not None and one.lower() == other.lower()
