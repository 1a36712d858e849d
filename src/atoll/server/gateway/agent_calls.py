"""Reads from requests of E2B clients, as they pass, which programs they start and which files they copy.

It is for the audit log, and a claim there. Whatever cannot be read is told in part, and passes all the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
import zlib
from collections.abc import Callable, Iterator
from email.message import Message as Header
from urllib.parse import parse_qs

import msgspec
from starlette.types import Message, Receive, Send

from atoll.protocol import TOLD_CHARACTERS, ToldLine
from atoll.server.gateway.request import GatewayRequest
from atoll.types.internal import from_json

_START = b"/process.Process/Start"
_FILES = b"/files"
_EXECUTE, _CODE_PORT = b"/execute", 49999
# So much of a body is kept until it is read. A longer file has no hash.
_KEPT_BYTES = 1 << 20
_HASHED_BYTES = 8 << 20
_ARGUMENTS_MOST = 1000
_PARTS_MOST = 1000
_ENVELOPE_BYTES = 5
_COMPRESSED = 1


class _Config(msgspec.Struct):
    cmd: str = ""
    args: list[str] = []


class _Start(msgspec.Struct):
    process: _Config = msgspec.field(default_factory=_Config)


class _Execute(msgspec.Struct):
    code: str = ""


class AgentCall:
    """Sees the pieces of a request and its answer, and tells what was done when the answer says so.

    Args:
        tell: Called with each line.
    """

    def __init__(self, request: GatewayRequest, tell: Callable[[ToldLine], None]) -> None:
        self._request = request
        self._tell = tell
        self._kept = bytearray()
        self._is_cut = False
        self._received = self._sent = 0
        self._status = 0
        self._is_coded = False
        self._hash = hashlib.sha256()

    def received(self, piece: bytes) -> None:
        """Take a piece of the request's body."""
        self._received += len(piece)
        room = _KEPT_BYTES - len(self._kept)
        self._kept += piece[:room]
        self._is_cut = self._is_cut or len(piece) > room

    def began(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Take the head of the answer."""
        self._status = status
        self._is_coded = any(name.lower() == b"content-encoding" for name, _ in headers)
        if not self._is_read:  # a program's answer lasts as long as the program
            self._tell_lines(complete=True)

    def sent(self, piece: bytes) -> None:
        """Take a piece of the answer."""
        self._sent += len(piece)
        if self._is_read and self._sent <= _HASHED_BYTES:
            self._hash.update(piece)

    @property
    def _is_read(self) -> bool:
        return self._request.path == _FILES and self._request.method == "GET"

    def ended(self, *, complete: bool) -> None:
        """Take the end of the answer.

        Args:
            complete: Whether it has been sent to its end.
        """
        if self._is_read:
            self._tell_lines(complete=complete)

    def _tell_lines(self, *, complete: bool) -> None:
        if not 200 <= self._status < 300:
            return
        try:
            lines = list(self._lines(complete))
        except Exception:
            # These are a client's bytes: whatever is wrong with them must not end its request.
            lines = list(self._unread())
        for line in lines:
            self._tell(line)

    def _lines(self, complete: bool) -> Iterator[ToldLine]:
        if self._is_read:
            yield self._read(complete)
        elif self._request.path == _FILES:
            yield from self._written()
        elif self._request.path == _EXECUTE:
            code = from_json(_unpacked(bytes(self._kept), self._coding()), _Execute).code
            yield ToldLine(act="code.run", at=time.time(), line=code[:TOLD_CHARACTERS])
        else:
            argv = self._started()
            shown = tuple(part[:TOLD_CHARACTERS] for part in argv[:_ARGUMENTS_MOST])
            yield ToldLine(act="command.started", at=time.time(), argv=shown, user=self._user())

    def _unread(self) -> Iterator[ToldLine]:
        """Say that something was done, without what could not be read."""
        if self._request.path == _FILES:
            yield ToldLine(act="file.written", at=time.time(), path=self._query("path"), user=self._user())
        elif self._request.path == _EXECUTE:
            yield ToldLine(act="code.run", at=time.time())
        else:
            yield ToldLine(act="command.started", at=time.time(), user=self._user())

    def _started(self) -> list[str]:
        flags, length = self._kept[0], int.from_bytes(self._kept[1:_ENVELOPE_BYTES], "big")
        data = bytes(self._kept[_ENVELOPE_BYTES : _ENVELOPE_BYTES + length])
        if flags & _COMPRESSED:
            data = _unpacked(data, b"gzip")
        if b"json" in self._request.named.get(b"content-type", b""):
            config = from_json(data, _Start).process
            return [config.cmd, *config.args]
        config_data = next((value for number, value in _fields(data) if number == 1), b"")
        found = [(number, value.decode(errors="replace")) for number, value in _fields(config_data)]
        command = [value for number, value in found if number == 1]
        return [*command[-1:], *(value for number, value in found if number == 2)]

    def _read(self, complete: bool) -> ToldLine:
        is_whole = complete and self._status == 200 and self._sent <= _HASHED_BYTES and not self._is_coded
        return ToldLine(
            act="file.read",
            at=time.time(),
            path=self._query("path"),
            bytes=None if self._is_coded else self._sent,
            sha256=self._hash.hexdigest() if is_whole else None,
            user=self._user(),
        )

    def _written(self) -> Iterator[ToldLine]:
        path = self._query("path")
        kind = Header()
        kind["content-type"] = self._request.named.get(b"content-type", b"").decode("latin-1")
        is_coded = self._coding() not in (b"", b"identity")
        if kind.get_content_type() != "multipart/form-data":
            size = None if is_coded else self._received
            yield self._file(path, size, None if self._is_cut or is_coded else bytes(self._kept))
            return
        body = _unpacked(bytes(self._kept), self._coding())
        boundary = b"--" + str(kind.get_param("boundary", "")).encode("latin-1", "replace")
        parts = body.split(b"\r\n" + boundary) if len(boundary) > 2 else []
        for number, part in enumerate(parts[:_PARTS_MOST]):
            head, found, content = part.partition(b"\r\n\r\n")
            name = _file_name(head)
            if not found or name is None:
                continue
            is_last = number == len(parts) - 1  # then its end is missing
            yield self._file(path or name, None if is_last else len(content), None if is_last else content)

    def _file(self, path: str, size: int | None, content: bytes | None) -> ToldLine:
        return ToldLine(
            act="file.written",
            at=time.time(),
            path=path[:TOLD_CHARACTERS],
            bytes=size,
            sha256=None if content is None else hashlib.sha256(content).hexdigest(),
            user=self._user(),
        )

    def _coding(self) -> bytes:
        return self._request.named.get(b"content-encoding", b"").lower()

    def _query(self, name: str) -> str:
        found = parse_qs(self._request.query.decode("latin-1")).get(name, [""])
        return found[0][:TOLD_CHARACTERS]

    def _user(self) -> str | None:
        if user := self._query("username"):
            return user
        scheme, _, coded = self._request.named.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"basic":
            return None
        try:
            return base64.b64decode(coded).partition(b":")[0].decode(errors="replace") or None
        except binascii.Error:
            return None


def agent_call(request: GatewayRequest, tell: Callable[[ToldLine], None]) -> AgentCall | None:
    """Return what sees a request that may start a program or copy a file; None for any other."""
    if request.is_for_agent:
        is_one = (request.path == _START and request.method == "POST") or (
            request.path == _FILES and request.method in ("GET", "POST")
        )
    else:
        is_one = (request.target.port, request.path, request.method) == (_CODE_PORT, _EXECUTE, "POST")
    return AgentCall(request, tell) if is_one else None


def seen(call: AgentCall, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Return both sides of a client, as in ASGI, whose messages the call sees as well."""

    async def received() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            call.received(message.get("body", b""))
        return message

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            call.began(message["status"], message["headers"])
        elif message["type"] == "http.response.body":
            call.sent(message.get("body", b""))
        await send(message)

    return received, sent


def _unpacked(data: bytes, coding: bytes) -> bytes:
    if coding in (b"", b"identity"):
        return data
    if coding != b"gzip":
        raise ValueError("this coding is not known")
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, _KEPT_BYTES)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the fields of a message of Protocol Buffers that have a length, with their numbers.

    Raises:
        ValueError: It is no such message.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 2:
            length, at = _varint(data, at)
            if length > len(data) - at:
                raise ValueError("a field is longer than its message")
            yield tag >> 3, data[at : at + length]
            at += length
        elif kind == 0:
            _, at = _varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("a field has an unknown kind")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
    raise ValueError("a number has no end")


def _file_name(head: bytes) -> str | None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            header = Header()
            header["content-disposition"] = value.strip().decode(errors="replace")
            if header.get_param("name", header="content-disposition") != "file":
                return None
            found = header.get_param("filename", header="content-disposition")
            return found if isinstance(found, str) else None
    return None
