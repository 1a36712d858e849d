"""Reads tar archives from guests as bytes arrive, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from atoll.errors import AgentError
from atoll.guest import error_from

_BLOCK = 512
_EXTENDED_BYTES = 1 << 20
_LARGEST_BYTES = 1 << 60
_LENGTH_DIGITS = 8
# other records are dropped at once, because headers may follow headers without end
_KNOWN_RECORDS = frozenset({"path", "linkpath", "size", "mtime"})
# see agent/files/tree.go: the answer's status was sent before the archive
_FAULT_RECORD = "ATOLL.fault"
_FAULT_STATUS = 500
_KINDS: dict[bytes, Literal["file", "hardlink", "symlink", "directory", "other"]] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hardlink",
    b"2": "symlink",
    b"3": "other",
    b"4": "other",
    b"5": "directory",
    b"6": "other",
}


class Entry(NamedTuple):
    """The header of an entry. The bytes of a file follow it."""

    name: str
    kind: Literal["file", "hardlink", "symlink", "directory", "other"]
    size_bytes: int
    mode: int
    modified_at: float
    target: str


class TarReader:
    """Reads ustar, pax and GNU long names."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self._padding = 0
        self._is_file = False
        self._next: dict[str, str] = {}
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Entry | bytes]:
        """Add bytes. Gives entries, and for each file the pieces of its content and then ``b""``.

        Raises:
            AgentError: The bytes are not a tar.
            AtollError: The guest could not send all of it; the message says why.
        """
        if self.ended:
            return
        self._buffer += data
        while True:
            if self._left:
                if not self._buffer:
                    return
                piece = bytes(self._buffer[: self._left])
                del self._buffer[: self._left]
                self._left -= len(piece)
                if self._is_file:
                    yield piece
                    if not self._left:
                        yield b""
                continue
            if self._padding:
                skipped = min(self._padding, len(self._buffer))
                del self._buffer[:skipped]
                self._padding -= skipped
                if self._padding:
                    return
            entry = self._header()
            if entry is None:
                return
            if isinstance(entry, Entry):
                yield entry
                if entry.kind == "file" and not entry.size_bytes:
                    yield b""

    def _header(self) -> Entry | bool | None:
        """Read a header.

        Returns an entry, True if the header only describes the next one, or None if bytes are missing.
        """
        if len(self._buffer) < _BLOCK:
            return None
        block = bytes(self._buffer[:_BLOCK])
        if not any(block):
            self.ended = True
            self._buffer.clear()
            return None
        _check(block)
        size = _number(block[124:136])
        if not 0 <= size < _LARGEST_BYTES:
            raise AgentError(f"the archive from the sandbox has the bad size {size}")
        kind = block[156:157]
        if kind in (b"x", b"g", b"L", b"K"):
            return self._extension(kind, size)
        del self._buffer[:_BLOCK]
        return self._entry(block, kind, size)

    def _extension(self, kind: bytes, size: int) -> bool | None:
        if size > _EXTENDED_BYTES:
            raise AgentError("the archive from the sandbox has an extended header that is too long")
        whole = _BLOCK + size + -size % _BLOCK
        if len(self._buffer) < whole:
            return None
        content = bytes(self._buffer[_BLOCK : _BLOCK + size])
        del self._buffer[:whole]
        if kind == b"x":
            self._next.update((key, value) for key, value in _pax(content) if key in _KNOWN_RECORDS)
        elif kind == b"g":
            for key, value in _pax(content):
                if key == _FAULT_RECORD:
                    raise error_from(_FAULT_STATUS, value.encode("utf-8", "surrogateescape"))
        else:
            self._next["path" if kind == b"L" else "linkpath"] = _text(content.rstrip(b"\0"))
        return True

    def _entry(self, block: bytes, kind: bytes, size: int) -> Entry:
        known, self._next = self._next, {}
        prefix = _text(block[345:500].split(b"\0")[0]) if block[257:263] == b"ustar\0" else ""
        name = _text(block[:100].split(b"\0")[0])
        size = _decimal(known["size"]) if "size" in known else size
        meant = _KINDS.get(kind)
        if meant is None:
            raise AgentError(f"the archive from the sandbox has an entry of the unknown type {kind!r}")
        if meant == "file" and name.endswith("/") and not size:
            meant = "directory"
        if meant != "file" and meant != "other":
            size = 0
        self._left, self._padding, self._is_file = size, -size % _BLOCK, meant == "file"
        return Entry(
            name=known.get("path", f"{prefix}/{name}" if prefix else name),
            kind=meant,
            size_bytes=size,
            mode=_number(block[100:108]) & 0o7777,
            modified_at=_time(known.get("mtime"), block),
            target=known.get("linkpath", _text(block[157:257].split(b"\0")[0])),
        )


def _check(block: bytes) -> None:
    told = _number(block[148:156])
    if told != sum(block[:148]) + sum(block[156:]) + 8 * 32:
        raise AgentError("the archive from the sandbox has a header with a wrong checksum")


def _number(field: bytes) -> int:
    if field[0] in (0x80, 0xFF):
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0x80 else value - (1 << 8 * (len(field) - 1))
    digits = field.split(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8)
    except ValueError:
        raise AgentError("the archive from the sandbox has a header with a bad number") from None


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise AgentError(f"the archive from the sandbox has the bad size {text[:40]!r}")
    return int(text)


def _time(pax: str | None, block: bytes) -> float:
    try:
        value = float(pax) if pax is not None else float(_number(block[136:148]))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e11 else 0.0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _pax(content: bytes) -> Iterator[tuple[str, str]]:
    """Iterate over the records of a pax header: a length, a space, ``KEY=VALUE`` and a line break."""
    at = 0
    while at < len(content):
        space = content.find(b" ", at, at + _LENGTH_DIGITS + 1)
        length = content[at:space] if space >= 0 else b""
        if not length.isdigit():
            break
        end = at + int(length)
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not equals or not space < end <= len(content):
            break
        yield _text(key), _text(value)
        at = end
    else:
        return
    raise AgentError("the archive from the sandbox has a bad extended header")
