"""Frames: compressed and sealed, several in a pack. A frame is the least that is read, or kept."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from atoll.errors import DamagedError
from atoll.store.keys import ID_BYTES, StoreKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME_BYTES = 64 << 10
"""Small pieces are gathered into frames of about this size."""
PIECE_MOST = 1 << 20
"""The longest piece, and so nearly the longest frame: ``FRAME_BYTES`` may stand before it."""
FRAME_MOST = FRAME_BYTES + PIECE_MOST
_LEVEL = 1
# A sealed frame may be so much longer than its content: a mark, and the code of AES-GCM.
_OVER_BYTES = 64
_PACK_NAME = re.compile(r"[0-9a-f]{32}")
_RAW, _ZSTD = b"\0", b"\1"


class FrameEntry(msgspec.Struct, frozen=True, array_like=True):
    """A frame in the index of a pack: its id, its sealed size and its own length in bytes."""

    frame: bytes
    size: int
    length: int


class PackIndex(msgspec.Struct, frozen=True, array_like=True):
    """A pack in an index, with its frames in their order."""

    pack: bytes
    entries: list[FrameEntry]

    def check(self) -> None:
        """Check that its numbers can be.

        Raises:
            ValueError: They cannot.
        """
        frames = {each.frame for each in self.entries}
        if len(frames) < len(self.entries) or any(len(each) != ID_BYTES for each in (self.pack, *frames)):
            raise ValueError("a pack has ids that cannot be")
        for each in self.entries:
            if not 0 < each.length <= FRAME_MOST or not 0 < each.size <= FRAME_MOST + _OVER_BYTES:
                raise ValueError("a frame has a size that cannot be")


class FramePlace(NamedTuple):
    """Where a frame is. ``number`` counts the frames of the pack, ``start`` and ``size`` are in sealed bytes."""

    pack: bytes
    number: int
    start: int
    size: int
    length: int


class Pack:
    """A pack that is being filled.

    Args:
        key: The owner's key.
    """

    def __init__(self, key: StoreKey) -> None:
        self.id = os.urandom(ID_BYTES)
        self.entries: list[FrameEntry] = []
        self.size = 0
        self._cipher = _cipher(key, self.id)
        self._parts: list[bytes] = []

    def add(self, frame: bytes, data: bytes) -> None:
        """Compress and seal a frame, and append it."""
        packed = zstd.compress(data, _LEVEL)
        packed = _ZSTD + packed if len(packed) < len(data) else _RAW + data
        sealed = self._cipher.encrypt(_nonce(len(self.entries)), packed, frame)
        self.entries.append(FrameEntry(frame, len(sealed), len(data)))
        self._parts.append(sealed)
        self.size += len(sealed)

    def data(self) -> bytes:
        """Return the whole pack."""
        return b"".join(self._parts)

    def index(self) -> PackIndex:
        """Return its part of an index."""
        return PackIndex(self.id, self.entries)


class OpenPack:
    """Opens the frames of a pack.

    Args:
        key: The owner's key.
        pack: The pack's id.
    """

    def __init__(self, key: StoreKey, pack: bytes) -> None:
        self._pack = pack
        self._cipher = _cipher(key, pack)

    def open(self, frame: bytes, place: FramePlace, sealed: bytes | memoryview) -> bytes:
        """Return the content of a frame, checked.

        Raises:
            DamagedError: It is not as it was written.
        """
        from cryptography.exceptions import InvalidTag

        try:
            packed = self._cipher.decrypt(_nonce(place.number), sealed, frame)
            data = packed[1:]
            if packed[:1] == _ZSTD:
                # never more than was said, whatever the compressed bytes would become
                data = zstd.ZstdDecompressor().decompress(data, max_length=place.length + 1)
            if len(data) != place.length:
                raise InvalidTag
        except (InvalidTag, zstd.ZstdError):
            raise DamagedError(
                f"the frame {frame.hex()} of the pack {self._pack.hex()} is not as it was written"
            ) from None
        return data


def places_of(pack: bytes, entries: list[FrameEntry]) -> dict[bytes, FramePlace]:
    """Return where the frames of a pack with this index are."""
    places = {}
    start = 0
    for number, entry in enumerate(entries):
        places[entry.frame] = FramePlace(pack, number, start, entry.size, entry.length)
        start += entry.size
    return places


def pack_name(domain: str, pack: bytes) -> str:
    """Return the name of a pack's object."""
    return f"{domain}/packs/{pack.hex()[:2]}/{pack.hex()}"


def pack_of(name: str) -> bytes | None:
    """Return the pack whose object has this name; None if it is none."""
    found = _PACK_NAME.fullmatch(name.rpartition("/")[2])
    return bytes.fromhex(found[0]) if found is not None else None


def _cipher(key: StoreKey, pack: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.pack_key(pack))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
