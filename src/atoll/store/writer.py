"""Stores contents: each piece once, in frames, in packs."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType

from atoll.errors import StoreError
from atoll.store.catalog import Catalog, put_index
from atoll.store.contents import HOLE, Content
from atoll.store.frames import FRAME_BYTES, PIECE_MOST, Pack, pack_name
from atoll.store.keys import StoreKey
from atoll.store.named import NamedContents
from atoll.store.objects import Objects

PAGE_BYTES = 4096
PACK_BYTES = 16 << 20
_UPLOADS = 4
_READ_BYTES = 1 << 20
# Frames of which the store has all are noted at least so often.
_FRAMES_MOST = 2048


@dataclass(eq=False)
class _Frame:
    """A frame that is being filled, or was: then it has its id."""

    parts: list[bytes | memoryview] = field(default_factory=list)
    pieces: list[tuple[bytes, int, int]] = field(default_factory=list)
    length: int = 0
    id: bytes = b""


class Writer:
    """Stores contents of one owner.

    Nothing that it stores counts until a record names it. So a writer that is given up leaves only packs,
    which the next one uses again, or which are collected. Inside ``with``, from one thread.

    Args:
        objects: The store.
        key: The owner's key.
        catalog: What the store has. Refresh it before.
        told: Called with the number of bytes after each part that was read. What it raises ends the writer.

    Attributes:
        frames: The frames of all contents so far.
        used_packs: The packs that these are in.
        stored_bytes: The bytes of the packs that it has written.
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
        self._names = NamedContents(catalog.file)
        self._told = told
        self._frame = _Frame()
        self._pack = Pack(key)
        self._packed: list[_Frame] = []
        self._fresh: dict[bytes, tuple[_Frame, int, int]] = {}
        self._sealed: dict[bytes, _Frame] = {}
        self._uploads: dict[Future[str], tuple[Pack, list[_Frame]]] = {}
        self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="store-upload")
        self._named: list[tuple[str, Content, set[bytes]]] = []
        self._has_failed = False
        self.used_packs: set[bytes] = set()
        self.frames: set[bytes] = set()
        self.stored_bytes = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(self, data: bytes) -> Content:
        """Store bytes, in pieces of at most 1 MiB."""
        content = ContentWriter(self)
        content.add(data, PIECE_MOST)
        return content.finish()

    def write_file(self, descriptor: int, size: int, *, pages: bool = False) -> Content:
        """Do the work of ``begin_file``, and return the content."""
        return self.begin_file(descriptor, size, pages=pages).finish()

    def begin_file(self, descriptor: int, size: int, *, pages: bool = False) -> ContentWriter:
        """Store an open file. Holes are not read. Small files share a frame if they are finished together.

        Args:
            descriptor: The file, readable and seekable.
            size: Its length in bytes.
            pages: Whether equal pages of 4 KiB are to be found, as in memory. Otherwise pieces have 1 MiB.

        Raises:
            StoreError: The file became shorter, or the store cannot be reached.
        """
        content = ContentWriter(self)
        piece_bytes = PAGE_BYTES if pages else PIECE_MOST
        at = 0
        for start, end in data_ranges(descriptor, size, piece_bytes):
            content.add_zeros(start - at)
            at = start
            while at < end:
                data = os.pread(descriptor, min(_READ_BYTES, end - at), at)
                if not data:
                    raise StoreError(f"a file became shorter than {size} bytes while it was stored")
                content.add(data, piece_bytes)
                at += len(data)
                self._told(len(data))
        content.add_zeros(size - at)
        return content

    def once(self, name: str, write: Callable[[], Content]) -> Content:
        """Return what this home has stored under a name, if all of it is still there; otherwise write it.

        Args:
            name: Names something that never changes, such as a layer of a disk.
            write: Writes it with this writer.
        """
        known = self._names.find(name)
        if known is not None:
            self.used_packs |= known.packs
            self.frames |= known.frames
            return known.content
        before, self.frames = self.frames, set()
        try:
            content = write()
            self._named.append((name, content, self.frames))
        finally:
            self.frames = before | self.frames
        return content

    def finish(self) -> None:
        """Return when all that was written is in the store.

        Raises:
            StoreError: It is not.
        """
        with self._step():
            self._close_frame()
            self._send()
            while self._uploads:
                self._reap(FIRST_COMPLETED)
            while self._named:
                self._names.note(*self._named.pop())

    def known(self, pieces: Sequence[bytes]) -> dict[bytes, tuple[_Frame, int, int]]:
        """Return where pieces are that need not be stored again."""
        found = {piece: self._fresh[piece] for piece in pieces if piece in self._fresh}
        frames: dict[bytes, _Frame] = {}
        for piece, known in self._catalog.pieces(piece for piece in pieces if piece not in found).items():
            self.used_packs.add(known.pack)
            frame = frames.setdefault(known.frame, _Frame(id=known.frame))
            found[piece] = (frame, known.start, known.length)
        return found

    def id_of(self, piece: bytes | memoryview) -> bytes:
        """Return the id of a piece."""
        return self._key.id_of(piece)

    def append(self, piece: bytes, data: bytes | memoryview) -> tuple[_Frame, int, int]:
        """Store a piece that the store does not have."""
        if len(data) >= FRAME_BYTES:
            # a frame of its own, which a home that does not know its pieces finds again
            self.close_frame()
        frame = self._frame
        where = (frame, frame.length, len(data))
        frame.parts.append(data)
        frame.pieces.append((piece, frame.length, len(data)))
        frame.length += len(data)
        self._fresh[piece] = where
        if frame.length >= FRAME_BYTES:
            self.close_frame()
        return where

    def close_frame(self) -> None:
        """Begin another frame, so that all pieces until now have their places."""
        with self._step():
            self._close_frame()

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        """A step after which, if it fails, nobody knows any more what is in the store."""
        if self._has_failed:
            raise StoreError("writing to the store has failed before", hint="begin again")
        try:
            yield
        except BaseException:
            self._has_failed = True
            raise

    def _close_frame(self) -> None:
        frame, self._frame = self._frame, _Frame()
        if not frame.length:
            return
        data = b"".join(frame.parts)
        frame.parts = []
        # The ids of its pieces stand for these: hashing all bytes again would take a quarter of the time.
        frame.id = self._key.id_of(b"".join(piece for piece, *_ in frame.pieces))
        self._packed.append(frame)
        if not self._has(frame.id):
            self._pack.add(frame.id, data)
            self._sealed[frame.id] = frame
        if self._pack.size >= PACK_BYTES or len(self._packed) >= _FRAMES_MOST:
            self._send()

    def _has(self, frame: bytes) -> bool:
        """Whether the store has a frame already, stored by somebody whose pieces this home does not know."""
        if frame in self._sealed:
            return True
        pack = self._catalog.usable_pack(frame)
        if pack is None:
            return False
        self.used_packs.add(pack)
        return True

    def _send(self) -> None:
        pack, frames = self._pack, self._packed
        if not frames:
            return
        self._pack, self._packed = Pack(self._key), []
        if len(self._uploads) >= _UPLOADS:
            self._reap(FIRST_COMPLETED)
        self._uploads[self._pool.submit(self._upload, pack)] = (pack, frames)

    def _upload(self, pack: Pack) -> str:
        """Write a pack and its index, and return the name of the index."""
        if not pack.entries:
            return ""
        self._objects.put(pack_name(self._key.domain, pack.id), pack.data())
        return put_index(self._objects, self._key, [pack.index()])

    def _reap(self, which: str) -> None:
        done, _ = wait(self._uploads, return_when=which)
        for future in done:
            pack, frames = self._uploads.pop(future)
            index = future.result()
            pieces = [
                (piece, frame.id, start, length) for frame in frames for piece, start, length in frame.pieces
            ]
            if pack.entries:
                self.stored_bytes += pack.size
                self.used_packs.add(pack.id)
                self._catalog.add(index, [pack.index()])
            self._catalog.add_pieces(pieces)
            for frame in frames:
                frame.pieces = []
            for piece, *_ in pieces:
                self._fresh.pop(piece, None)
            for entry in pack.entries:
                self._sealed.pop(entry.frame, None)


class ContentWriter:
    """Builds one content from its pieces in their order.

    Args:
        writer: Stores the pieces.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._runs: list[tuple[_Frame | None, int, int]] = []
        self._size = 0

    def add(self, data: bytes, piece_bytes: int) -> None:
        """Append bytes, in pieces of this length. The last one may be shorter."""
        whole = memoryview(data)  # its slices are no copies
        pieces = [whole[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
        ids = [
            b"" if is_zero(data, at, len(piece)) else self._writer.id_of(piece)
            for at, piece in zip(range(0, len(data), piece_bytes), pieces, strict=True)
        ]
        known = self._writer.known([each for each in ids if each])
        for each, piece in zip(ids, pieces, strict=True):
            if not each:
                self.add_zeros(len(piece))
                continue
            where = known.get(each)
            if where is None:
                where = known[each] = self._writer.append(each, piece)
            self._append(*where)

    def add_zeros(self, length: int) -> None:
        """Append zeros."""
        if length:
            self._append(None, 0, length)

    def finish(self) -> Content:
        """Return the content."""
        if any(frame is not None and not frame.id for frame, *_ in self._runs):
            self._writer.close_frame()
        numbers: dict[bytes, int] = {}
        runs: list[int] = []
        for frame, start, length in self._runs:
            number = HOLE if frame is None else numbers.setdefault(frame.id, len(numbers))
            if number != HOLE and runs and runs[-3] == number and runs[-2] + runs[-1] == start:
                runs[-1] += length
            else:
                runs += (number, start, length)
        self._writer.frames.update(numbers)
        return Content(self._size, b"".join(numbers), tuple(runs))

    def _append(self, frame: _Frame | None, start: int, length: int) -> None:
        self._size += length
        if self._runs:
            last, begins, so_far = self._runs[-1]
            if last is frame and (frame is None or begins + so_far == start):
                self._runs[-1] = (last, begins, so_far + length)
                return
        self._runs.append((frame, start, length))


def is_zero(data: bytes, start: int, length: int) -> bool:
    """Whether a part of some bytes has nothing but zeros."""
    return data[start] == 0 and data.count(0, start, start + length) == length


def data_ranges(descriptor: int, size: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that are not holes, in whole steps but for the end.

    Raises:
        StoreError: The file became shorter.
    """
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.EINVAL:  # this file system does not report holes
                yield at, size
                return
            if error.errno != errno.ENXIO:
                raise
            if os.fstat(descriptor).st_size < size:
                raise StoreError(f"a file became shorter than {size} bytes while it was stored") from None
            return  # only a hole is left
        if at >= size:
            return  # it has become longer
        begin = at - at % step
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        end = min(size, end + -end % step)
        yield begin, end
        at = end
