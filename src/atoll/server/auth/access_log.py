"""The access log: a line of JSON for each request, without secrets."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.errors import InvalidSpecError

_FILE_BYTES = 64 << 20
_OLD_FILES = 3
_METHOD_MOST = 16
_COMPLAIN_S = 60.0
_log = logging.getLogger(__name__)


@dataclass
class Note:
    """The facts about a request that become known during its answer."""

    peer: str = ""
    team: str | None = None
    key_id: str | None = None
    route: str | None = None
    sandbox_id: str | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log. ``route`` is a template, never a path, because a path may contain secrets.

    ``route`` is ``gateway`` for requests to a port of a sandbox, which ``sandbox_id`` names. ``bytes`` is the
    size of the answer's body. ``status`` is None if there was no answer.
    """

    time: str
    team: str | None
    key_id: str | None
    method: str
    route: str | None
    sandbox_id: str | None
    status: int | None
    ms: float
    bytes: int
    peer: str


_note: ContextVar[Note] = ContextVar("note")


def note() -> Note:
    """Return the note about the request being answered."""
    try:
        return _note.get()
    except LookupError:
        return Note()


class AccessLog:
    """Writes a log file that only this user can read.

    At 64 MiB it is replaced; three old files are kept beside it.

    Args:
        path: The file, which is made if missing. Its directory must exist.

    Raises:
        InvalidSpecError: The file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = _File(path, maxBytes=_FILE_BYTES, backupCount=_OLD_FILES, encoding="utf-8")
        except OSError as error:
            raise InvalidSpecError(
                f"the access log {path} cannot be written: {error.strerror}",
                hint="give --access-log a plain file in a directory that exists",
            ) from error

    def write(self, line: Line) -> None:
        """Add a line. If that fails, the server's own log reports it and the request goes on."""
        text = msgspec.json.encode(line).decode()
        self._file.handle(logging.LogRecord("access", logging.INFO, "", 0, text, None, None))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _File(logging.handlers.RotatingFileHandler):
    _complained_s = float("-inf")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Report that the log cannot be written, once a minute."""
        now_s = time.monotonic()
        if now_s - self._complained_s >= _COMPLAIN_S:
            self._complained_s = now_s
            _log.error("cannot write %s: %s", self.baseFilename, sys.exc_info()[1])


def logged(app: ASGIApp, log: AccessLog, clock: Callable[[], float] = time.time) -> ASGIApp:
    """Wrap the application so that each answered request is logged."""

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await app(scope, receive, send)
            return
        answer = _Answer(send)
        with _noting(Note(peer=(scope.get("client") or ("",))[0])) as noted:
            began_s, began = clock(), time.perf_counter()
            try:
                await app(scope, receive, answer.send)
            finally:
                route = noted.route or getattr(scope.get("route"), "path", None)
                log.write(
                    Line(
                        time=datetime.fromtimestamp(began_s, UTC).isoformat(timespec="milliseconds"),
                        team=noted.team,
                        key_id=noted.key_id,
                        method=str(scope.get("method", "WEBSOCKET"))[:_METHOD_MOST],
                        route=route,
                        sandbox_id=noted.sandbox_id,
                        status=answer.status,
                        ms=round((time.perf_counter() - began) * 1000, 3),
                        bytes=answer.bytes,
                        peer=noted.peer,
                    )
                )

    return around


class _Answer:
    """Counts the bytes of an answer on its way."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.bytes = 0

    async def send(self, message: Any) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            self.bytes += len(message.get("body", b""))
        elif kind == "http.response.start":
            self.status = message["status"]
        elif kind == "websocket.send":
            self.bytes += len(message.get("bytes") or message.get("text") or "")
        elif kind == "websocket.accept":
            self.status = 101
        await self._send(message)


@contextlib.contextmanager
def _noting(noted: Note) -> Iterator[Note]:
    before = _note.set(noted)
    try:
        yield noted
    finally:
        _note.reset(before)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
