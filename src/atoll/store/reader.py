"""Reads contents: few ranges of packs, several at once, each frame checked."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from atoll.errors import DamagedError
from atoll.store.catalog import Catalog
from atoll.store.contents import Content, Run
from atoll.store.frames import FramePlace, OpenPack, pack_name
from atoll.store.keys import StoreKey
from atoll.store.objects import MissingObjectError, Objects

_READS = 4
_WAITING = 6
_RANGE_BYTES = 4 << 20
# Reading this much too much costs less than another request.
_GAP_BYTES = 128 << 10
CONTENT_MOST_BYTES = 1 << 30
"""The longest content that is read at once, such as the list of a tree."""


@dataclass(eq=False)
class _Range:
    """A range of a pack that is read at once, with the frames wanted of it."""

    pack: bytes
    start: int
    end: int
    frames: list[tuple[bytes, FramePlace]]


class _Part(NamedTuple):
    """A part of a content, given by its number, and its place there in bytes."""

    which: int
    at: int
    data: memoryview


class Reader:
    """Reads contents of one owner. Inside ``with``, from one thread.

    Args:
        objects: The store.
        key: The owner's key.
        catalog: What the store has.
        told: Called with the number of bytes after each part that was read. What it raises ends the reading.
    """

    def __init__(
        self,
        objects: Objects,
        key: StoreKey,
        catalog: Catalog,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._objects = objects
        self._key = key
        self._catalog = catalog
        self._told = told
        self._packs: dict[bytes, OpenPack] = {}
        self._pool = ThreadPoolExecutor(_READS, thread_name_prefix="store-read")

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def read(self, content: Content, most_bytes: int = CONTENT_MOST_BYTES) -> bytes:
        """Return a whole content, which fits into memory.

        Args:
            content: The content.
            most_bytes: A longer one is refused.

        Raises:
            DamagedError: A part of it is missing, or not as it was written, or it is longer.
            StoreError: The store cannot be reached.
        """
        if not 0 <= content.size <= most_bytes:
            raise DamagedError(f"a stored content has {content.size} bytes, more than any")
        data = bytearray(content.size)
        for part in self._parts([content]):
            data[part.at : part.at + len(part.data)] = part.data
        return bytes(data)

    def write_file(self, content: Content, descriptor: int) -> None:
        """Do the work of ``write_files`` for one file."""
        self.write_files([(content, descriptor)])

    def write_files(self, files: Sequence[tuple[Content, int]]) -> None:
        """Write contents into open, empty files, each frame read once. Zeros become holes.

        Raises:
            DamagedError: A part is missing, or not as it was written. The files have the other parts.
            StoreError: The store cannot be reached.
        """
        for content, descriptor in files:
            os.ftruncate(descriptor, content.size)
        for which, at, data in self._parts([content for content, _ in files]):
            descriptor, rest = files[which][1], data
            while rest:
                count = os.pwrite(descriptor, rest, at)
                rest, at = rest[count:], at + count

    def _parts(self, contents: Sequence[Content]) -> Iterator[_Part]:
        """Yield the parts of contents that are not zeros, in the order in which they come."""
        wanted: dict[bytes, list[tuple[int, Run]]] = defaultdict(list)
        for which, content in enumerate(contents):
            for run in content.parts():
                wanted[run.frame].append((which, run))
        for frame, data in self.frames(wanted):
            for which, run in wanted[frame]:
                if run.start + run.length > len(data):
                    raise DamagedError(f"a run of a content ends after its frame {frame.hex()}")
                yield _Part(which, run.at, memoryview(data)[run.start : run.start + run.length])

    def frames(self, wanted: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield frames with their contents, each once, in the order in which they lie in the packs.

        Raises:
            DamagedError: A frame is missing, or not as it was written.
        """
        places = self._places(wanted)
        waiting: deque[tuple[_Range, Future[bytes]]] = deque()
        ranges = iter(_ranges(places))
        while True:
            while len(waiting) < _WAITING and (each := next(ranges, None)) is not None:
                waiting.append((each, self._pool.submit(self._fetch, each)))
            if not waiting:
                return
            each, future = waiting.popleft()
            try:
                data = future.result()
            except MissingObjectError:
                yield from self._moved(each)
                continue
            yield from self._opened(each, data)

    def _moved(self, missing: _Range) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames of a range whose pack was collected since the catalog was read."""
        self._catalog.refresh()
        gone = {missing.pack}
        wanted = [frame for frame, _ in missing.frames]
        while wanted:
            places = self._catalog.places(wanted, but=gone)
            if len(places) < len(wanted):
                packs = ", ".join(pack.hex() for pack in gone)
                raise DamagedError(f"the pack {packs} of the store is missing")
            wanted = []
            for each in _ranges(places):
                try:
                    data = self._fetch(each)
                except MissingObjectError:
                    gone.add(each.pack)
                    wanted += [frame for frame, _ in each.frames]
                else:
                    yield from self._opened(each, data)

    def _opened(self, where: _Range, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        pack = self._packs.get(where.pack)
        if pack is None:
            pack = self._packs[where.pack] = OpenPack(self._key, where.pack)
        view = memoryview(data)
        for frame, place in where.frames:
            at = place.start - where.start
            content = pack.open(frame, place, view[at : at + place.size])
            self._told(len(content))
            yield frame, content

    def _places(self, wanted: Iterable[bytes]) -> dict[bytes, FramePlace]:
        frames = list(wanted)
        places = self._catalog.places(frames)
        if len(places) < len(set(frames)):
            self._catalog.refresh()
            places = self._catalog.places(frames)
        for frame in frames:
            if frame not in places:
                raise DamagedError(f"the frame {frame.hex()} is missing in the store")
        return places

    def _fetch(self, where: _Range) -> bytes:
        name = pack_name(self._key.domain, where.pack)
        return self._objects.read(name, where.start, where.end - where.start)


def _ranges(places: dict[bytes, FramePlace]) -> Iterator[_Range]:
    """Yield the ranges to read for frames: few, and none very long."""
    current: _Range | None = None
    for frame, place in sorted(places.items(), key=lambda each: each[1][:3]):
        end = place.start + place.size
        if (
            current is not None
            and current.pack == place.pack
            and place.start - current.end <= _GAP_BYTES
            and end - current.start <= _RANGE_BYTES
        ):
            current.end = end
            current.frames.append((frame, place))
            continue
        if current is not None:
            yield current
        current = _Range(place.pack, place.start, end, [(frame, place)])
    if current is not None:
        yield current
