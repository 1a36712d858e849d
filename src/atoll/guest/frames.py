"""Frames: the units of a stream of the agent. All input comes from a guest, so all of it is checked."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from atoll.errors import AgentError
from atoll.guest.answers import Pid, ProcessEnd, decoded
from atoll.types import WatchEvent

FRAME_LIMIT_BYTES = 65536
_HEAD_BYTES = 5
_KEPT_MOST_BYTES = 4 << 20
_KINDS = {byte: chr(byte) for byte in b"soetwmkx"}


class Frame(NamedTuple):
    """A frame. ``kind`` is its type letter."""

    kind: str
    payload: bytes


class FrameReader:
    """Cuts a stream of bytes into frames. Keeps less than one frame."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def midway(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes and return the frames that are now complete.

        Raises:
            AgentError: The bytes are not frames.
        """
        if self._rest:
            data = self._rest + data
        frames: list[Frame] = []
        at, end = 0, len(data)
        while end - at >= _HEAD_BYTES:
            kind = _KINDS.get(data[at])
            size = int.from_bytes(data[at + 1 : at + _HEAD_BYTES], "big")
            if kind is None or size > FRAME_LIMIT_BYTES:
                raise AgentError(f"the guest agent sent a frame of type {data[at]} and {size} bytes")
            stop = at + _HEAD_BYTES + size
            if stop > end:
                break
            frames.append(Frame(kind, data[at + _HEAD_BYTES : stop]))
            at = stop
        self._rest = data[at:]
        return frames


class _Kept(msgspec.Struct):
    kept: Annotated[int, Meta(ge=0)] = 0


class _Started(msgspec.Struct):
    pid: Pid


def started_from(payload: bytes) -> int:
    """Return the pid in a start frame."""
    return decoded(payload, _Started).pid


def kept_from(payload: bytes) -> int:
    """Return the number of older bytes in the output after a start frame, at most a guest's limit."""
    return min(decoded(payload, _Kept).kept, _KEPT_MOST_BYTES)


def end_from(payload: bytes) -> ProcessEnd:
    """Return how a program ended, from its last frame."""
    return decoded(payload, ProcessEnd)


def watch_event_from(payload: bytes) -> WatchEvent:
    """Return the change that a watch reports."""
    return decoded(payload, WatchEvent)
