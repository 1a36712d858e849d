"""What a stored stream of bytes consists of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from atoll.errors import DamagedError
from atoll.store.keys import ID_BYTES

HOLE = -1


class Run(NamedTuple):
    """A run of bytes of a content: where it is in the content, and where in a frame. All in bytes."""

    at: int
    frame: bytes
    start: int
    length: int


class Content(msgspec.Struct, frozen=True, array_like=True):
    """A stream of bytes as runs of frames and of zeros, which take no space.

    Attributes:
        size: Its length in bytes.
        frames: The ids of its frames, one after the other.
        runs: For each run three numbers: the number of its frame, or ``HOLE`` for zeros, the first byte there,
            and the length in bytes.
    """

    size: int
    frames: bytes = b""
    runs: tuple[int, ...] = ()

    def frame_ids(self) -> list[bytes]:
        """Return the ids of its frames."""
        return [self.frames[at : at + ID_BYTES] for at in range(0, len(self.frames), ID_BYTES)]

    def parts(self) -> Iterator[Run]:
        """Yield its runs without the zeros.

        Raises:
            DamagedError: The numbers contradict each other.
        """
        ids = self.frame_ids()
        at = 0
        if len(self.runs) % 3 or len(self.frames) % ID_BYTES:
            raise DamagedError("the runs of a stored content are cut")
        for place in range(0, len(self.runs), 3):
            number, start, length = self.runs[place : place + 3]
            if not HOLE <= number < len(ids) or start < 0 or length <= 0:
                raise DamagedError("a stored content has a run outside its frames")
            if number != HOLE:
                yield Run(at, ids[number], start, length)
            at += length
        if at != self.size:
            raise DamagedError(f"a stored content has {at} bytes instead of {self.size}")
