"""Prepares a program's output for the caller."""

from __future__ import annotations

import codecs
from collections import deque
from typing import Literal

from atoll.sdk._bytes import CHUNK_BYTES
from atoll.types import Output

StreamName = Literal["stdout", "stderr", "terminal"]
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
