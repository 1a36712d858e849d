"""Chains lines: each one has the hash of the one before and a code that only the holder of the key can make.

A line is the JSON of an entry with two members more, ``prev`` and ``mac``, always the last ones. ``prev`` is the
SHA-256 of the whole line before, without its end. ``mac`` is the HMAC-SHA-256 of what stands before it in the line.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import NamedTuple

import msgspec

from atoll.types import AuditEntry

NO_LINE = "0" * 64
_FORM = re.compile(
    rb'(\{"sequence":([1-9][0-9]{0,18}),.*,"prev":"([0-9a-f]{64})"),"mac":"([0-9a-f]{64})"\}', re.DOTALL
)
_encoder = msgspec.json.Encoder()


class Line(NamedTuple):
    """A line as it was read.

    Args:
        sequence: The number of its entry.
        prev: The hash of the line before, as the line says.
        is_ours: Whether its code fits it.
        digest: Its own hash.
    """

    sequence: int
    prev: str
    is_ours: bool
    digest: str


def digest_of(line: bytes) -> str:
    """Return the hash of a line without its end."""
    return hashlib.sha256(line).hexdigest()


def code_of(key: bytes, text: bytes) -> str:
    """Return the code of a text."""
    return hmac.digest(key, text, "sha256").hex()


def read_line(key: bytes, line: bytes) -> Line | None:
    """Read a line without its end; None if it has not the form of one."""
    found = _FORM.fullmatch(line)
    if found is None:
        return None
    is_ours = hmac.compare_digest(code_of(key, found[1]), found[4].decode())
    return Line(int(found[2]), found[3].decode(), is_ours, digest_of(line))


class Chain:
    """Makes the next line of a log.

    Args:
        key: The key of the codes.
        sequence: The number of the last entry; 0 if there is none.
        digest: The hash of the last line.
    """

    def __init__(self, key: bytes, sequence: int = 0, digest: str = NO_LINE) -> None:
        self._key = key
        self.sequence = sequence
        self.digest = digest

    def add(self, entry: AuditEntry) -> bytes:
        """Return the line of an entry, whose sequence is the next one, with its end."""
        assert entry.sequence == self.sequence + 1
        text = b'%s,"prev":"%s"' % (_encoder.encode(entry)[:-1], self.digest.encode())
        line = b'%s,"mac":"%s"}' % (text, code_of(self._key, text).encode())
        self.sequence, self.digest = entry.sequence, digest_of(line)
        return line + b"\n"
