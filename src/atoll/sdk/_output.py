"""Prepares a program's output for the caller."""

from __future__ import annotations

import codecs
from collections import deque
from typing import Literal

from atoll.sdk._bytes import CHUNK_BYTES
from atoll.types import Output

StreamName = Literal["stdout", "stderr", "terminal"]
_MOST_PIECES = 1 << 15
STREAM_OF: dict[str, StreamName] = {"o": "stdout", "e": "stderr", "t": "terminal"}


class Tail:
    """Keeps the last ``limit_bytes`` of a stream."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: deque[bytes | bytearray] = deque()
        self._size = 0
        self.truncated = False

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        if not data:
            return
        self._size += len(data)
        # a guest may write byte by byte, and each separate piece costs some fifty bytes more
        last = self._pieces[-1] if self._pieces else b""
        if isinstance(last, bytearray) and len(last) + len(data) <= CHUNK_BYTES:
            last += data
        else:
            self._pieces.append(data if len(data) > CHUNK_BYTES // 2 else bytearray(data))
        while self._pieces and self._size - len(self._pieces[0]) >= self._limit_bytes:
            self._size -= len(self._pieces.popleft())
            self.truncated = True

    def bytes(self) -> bytes:
        """Return what was kept."""
        kept = b"".join(self._pieces)
        if len(kept) > self._limit_bytes:
            self.truncated = True
            kept = kept[len(kept) - self._limit_bytes :]
        return kept


class LastLines:
    """Keeps the last lines of several streams together, in the order of their pieces.

    Args:
        lines: How many lines; None means all.
        most_bytes: How many bytes at most.
    """

    def __init__(self, lines: int | None, most_bytes: int) -> None:
        self._lines = lines
        self._most_bytes = most_bytes
        self._pieces: deque[tuple[str, bytes | bytearray]] = deque()
        self._size = 0

    def add(self, kind: str, data: bytes) -> None:
        """Take the next piece of a stream."""
        if not data:
            return
        self._size += len(data)
        last_kind, last = self._pieces[-1] if self._pieces else ("", b"")
        if last_kind == kind and isinstance(last, bytearray) and len(last) + len(data) <= CHUNK_BYTES:
            last += data
        else:
            self._pieces.append((kind, bytearray(data)))
        # a guest may change the stream with each byte, and each piece costs some bytes more
        while self._pieces and (
            self._size - len(self._pieces[0][1]) >= self._most_bytes or len(self._pieces) > _MOST_PIECES
        ):
            self._size -= len(self._pieces.popleft()[1])

    def pieces(self) -> list[tuple[str, bytes]]:
        """Return what was kept, each piece with its stream."""
        kept: list[tuple[str, bytes]] = []
        lines, room = self._lines, self._most_bytes
        for kind, piece in reversed(self._pieces):
            data = bytes(piece)
            if len(data) > room:
                data = _from_character(data[len(data) - room :])
            room -= len(data)
            if lines is not None:
                # the break at the very end begins no line
                data, lines = _last_lines(data, lines, len(data) - (not kept and data.endswith(b"\n")))
            if data:
                kept.append((kind, data))
            if lines == 0 or room <= 0:
                break
        return kept[::-1]


def _last_lines(data: bytes, lines: int, stop: int) -> tuple[bytes, int]:
    """Return what belongs to the last lines, and how many of them are still to come before it."""
    while lines:
        found = data.rfind(b"\n", 0, stop)
        if found < 0:
            return data, lines
        lines, stop = lines - 1, found
    return data[stop + 1 :] if stop < len(data) else b"", 0


def _from_character(data: bytes) -> bytes:
    """Return data that was cut from its first whole character on."""
    for skipped in range(min(3, len(data))):
        if data[skipped] & 0xC0 != 0x80:
            return data[skipped:]
    return data[3:]


class Decoder:
    """Turns the pieces of each stream into text. A character cut in two waits for its rest."""

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def output(self, stream: StreamName, data: bytes) -> Output:
        """Decode the next piece of a stream."""
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return Output(stream=stream, data=data, text=decoder.decode(data))

    def rest(self) -> list[Output]:
        """Return what was still waiting when the streams ended."""
        ends = [(stream, decoder.decode(b"", True)) for stream, decoder in self._decoders.items()]
        return [Output(stream=stream, data=b"", text=text) for stream, text in ends if text]  # type: ignore[arg-type]
