"""A store of few records as one stream, to be handed over as a file or through a pipe."""

from __future__ import annotations

import re
import tarfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from atoll.errors import DamagedError, InternalError, InvalidSpecError, StoreError
from atoll.store.directory import DirectoryObjects
from atoll.store.keys import StoreKey
from atoll.store.objects import MissingObjectError, Objects, StoredObject, Versioned, checked_name
from atoll.store.records import PART
from atoll.store.store import Store
from atoll.types.internal import from_json

FORMAT = 1
HEAD, END = "atoll-export.json", "atoll-export-end.json"
_BLOCK_BYTES = 512
_READ_BYTES = 1 << 20
_HEAD_MOST_BYTES = 64 << 10
OBJECT_MOST_BYTES = 64 << 20
OBJECTS_MOST = 1_000_000
_ID = "[0-9a-f]{32}"
_SHAPE = re.compile(f"packs/[0-9a-f]{{2}}/{_ID}|indexes/{_ID}|records/{PART}/{PART}")


class ExportHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first entry of an export.

    Attributes:
        key: The key of what follows. It is the export's own: whoever has the file can read it.
        facts: What its maker adds, for people and programs to see before they read the rest.
    """

    key: str
    format: int = FORMAT
    facts: dict[str, str] = {}


class ExportEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last entry of an export: how many objects came before. An export without it was cut."""

    objects: int


class ExportObjects(Objects):
    """Writes objects into a stream, as the entries of a tar archive. Nothing can be read or changed there.

    Args:
        stream: Where to write. It is not closed.
        head: The first entry.
    """

    def __init__(self, stream: BinaryIO, head: ExportHead) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._written: dict[str, int] = {}
        self._add(HEAD, msgspec.json.encode(head))

    @property
    def place(self) -> str:
        """What it is, in words for people."""
        return "an export"

    def close(self) -> None:
        """Write the end of the stream. Without it, an export is refused as cut."""
        self._add(END, msgspec.json.encode(ExportEnd(objects=len(self._written) - 1)))
        with self._lock:
            self._write(bytes(2 * _BLOCK_BYTES))

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Nothing can be read."""
        raise MissingObjectError(name)

    def versioned(self, name: str) -> Versioned | None:
        """Nothing can be read."""
        return None

    def put(self, name: str, data: bytes) -> None:
        """See ``Objects.put``."""
        self._add(checked_name(name), data)

    def create(self, name: str, data: bytes) -> str:
        """See ``Objects.create``."""
        self._add(checked_name(name), data)
        return name

    def replace(self, name: str, data: bytes, tag: str) -> str:
        """Nothing can be changed."""
        raise InternalError(f"{name} cannot be changed in an export")

    def remove(self, names: Iterable[str]) -> None:
        """Nothing can be removed."""
        raise InternalError(f"{', '.join(names)} cannot be removed from an export")

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See ``Objects.list``."""
        with self._lock:
            written = list(self._written.items())
        for name, size in written:
            if name.startswith(f"{prefix}/"):
                yield StoredObject(name, size)

    def _add(self, name: str, data: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime = len(data), int(time.time())
        with self._lock:
            if name in self._written:
                raise InternalError(f"an export has {name} already")
            self._write(entry.tobuf(tarfile.USTAR_FORMAT), data, bytes(-len(data) % _BLOCK_BYTES))
            self._written[name] = len(data)

    def _write(self, *parts: bytes) -> None:
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    # a raw stream may take a part
                    rest = rest[self._stream.write(rest) :]
            self._stream.flush()
        except OSError as error:
            raise StoreError(f"the export cannot be written: {error.strerror}") from None


def begin_export(stream: BinaryIO, facts: dict[str, str]) -> Store:
    """Return an empty store that is written to a stream. Close its ``objects`` when all is committed.

    Args:
        stream: Where to write.
        facts: See ``ExportHead``.
    """
    key = StoreKey.new()
    return Store(objects=ExportObjects(stream, ExportHead(key=key.text(), facts=facts)), key=key)


def read_export(stream: BinaryIO, into: Path, most_bytes: int) -> tuple[Store, ExportHead]:
    """Read an export into an empty directory, and return it as a store.

    The stream may come from anybody. Only what a store consists of is taken from it, within these bounds, and
    nothing of it is trusted yet: each object is checked by the key in the export when it is used.

    Args:
        stream: An export.
        into: A directory on a disk with room for it.
        most_bytes: The most that is read.

    Raises:
        InvalidSpecError: This is no export, or one of a newer format, or it is too big.
        DamagedError: The export is cut, or has entries that no export has.
        NoSpaceError: The disk is full.
    """
    objects = DirectoryObjects(into)
    head = _head(stream)
    key = StoreKey.from_text(head.key)
    left, count = most_bytes, 0
    while (entry := _entry(stream)).name != END:
        left, count = left - entry.size, count + 1
        _check(entry, key.domain, count, left)
        objects.put(entry.name, _content(stream, entry.size))
    try:
        end = from_json(_content(stream, min(entry.size, _HEAD_MOST_BYTES)), ExportEnd)
    except msgspec.DecodeError:
        raise DamagedError("the end of the export cannot be read") from None
    _read(stream, 2 * _BLOCK_BYTES)  # or else its writer would find the pipe closed
    if end.objects != count:
        raise DamagedError(f"the export has {count} objects instead of {end.objects}")
    return Store(objects=objects, key=key), head


def _head(stream: BinaryIO) -> ExportHead:
    none = InvalidSpecError("this is no export of atoll", hint="give a file that atoll has exported")
    try:
        entry = _entry(stream)
    except DamagedError:
        raise none from None
    if entry.name != HEAD or entry.size > _HEAD_MOST_BYTES:
        raise none
    try:
        head = from_json(_content(stream, entry.size), ExportHead)
    except msgspec.DecodeError:
        raise InvalidSpecError("the export begins with something that cannot be read") from None
    if head.format != FORMAT:
        raise InvalidSpecError(
            f"the export has the format {head.format}, and this atoll reads {FORMAT}",
            hint="read it with the atoll that wrote it, or a newer one",
        )
    return head


def _entry(stream: BinaryIO) -> StoredObject:
    """Read the header of the next entry. Extensions of the format, which `ExportObjects` never writes, are refused:
    their readers take memory by what the header says.
    """
    block = _read(stream, _BLOCK_BYTES)
    try:
        entry = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError):
        raise DamagedError("the export is cut, or has something else in it") from None
    if entry.type != tarfile.REGTYPE or entry.size < 0:
        raise DamagedError(f"the export has an entry that no export has: {entry.name[:100]!r}")
    return StoredObject(entry.name, entry.size)


def _check(entry: StoredObject, domain: str, count: int, left: int) -> None:
    at, _, rest = entry.name.partition("/")
    if at != domain or not _SHAPE.fullmatch(rest):
        raise DamagedError(f"the export has an entry that no export has: {entry.name[:100]!r}")
    if count > OBJECTS_MOST or entry.size > OBJECT_MOST_BYTES or left < 0:
        raise InvalidSpecError("the export is bigger than allowed")


def _content(stream: BinaryIO, size: int) -> bytes:
    data = _read(stream, size)
    _read(stream, -size % _BLOCK_BYTES)
    return data


def _read(stream: BinaryIO, size: int) -> bytes:
    """Read exactly so many bytes."""
    parts = []
    while size:
        try:
            part = stream.read(min(size, _READ_BYTES))
        except OSError as error:
            raise StoreError(f"the export cannot be read: {error.strerror}") from None
        if not part:
            raise DamagedError("the export is cut")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
