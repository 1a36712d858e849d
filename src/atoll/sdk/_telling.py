"""Tells the supervisor, for its audit log, which programs this process runs and which files it copies.

These calls go straight to the sandbox. What is told of them is only a claim of this process. It never delays them:
they leave a line in memory, and a thread sends what has come together.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from atoll.errors import (
    DeadlineError,
    NoSpaceError,
    QuotaError,
    SupervisorError,
)
from atoll.protocol import TOLD_CHARACTERS, TOLD_LINES_MOST, ToldAct, ToldLine, ToldRequest, trace_of
from atoll.sdk._caller import CALLS_FOR, caller
from atoll.sdk._holding import api_of

if TYPE_CHECKING:
    from atoll.guest import Program
    from atoll.host import Home
    from atoll.sdk._server import Server
    from atoll.sdk._sync.api import Api

# Lines that come so soon after each other are sent together.
_TOGETHER_S = 0.3
_AGAIN_S = 5.0
_LEAST_S = 0.05
_LINES_MOST = 1000
# Of what was copied and is not hashed yet.
_CONTENT_BYTES_MOST = 64 << 20
_REQUEST_BYTES = 1 << 20
_LAST_S = 2.0
_ARGUMENTS_MOST = 1000
# Then the same would help later, when there is a supervisor, or room.
_PASSING = (SupervisorError, DeadlineError, QuotaError, NoSpaceError)

Hashed = Callable[[], str | None]


class _Told(NamedTuple):
    where: Home | Server
    sandbox_id: str
    caller: str
    line: ToldLine
    content: bytes | Hashed | None

    @property
    def group(self) -> tuple[Home | Server, str, str]:
        return self.where, self.sandbox_id, self.caller


class Teller:
    """Keeps the lines of a process, and sends them in a thread of its own.

    It keeps 1,000 lines at most. What is over is counted, and the count is told.
    """

    _one: Teller | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lines: deque[_Told] = deque()
        self._dropped: dict[tuple[Home | Server, str, str], int] = {}
        self._content_bytes = 0
        self._some = threading.Event()
        self._hurry = threading.Event()
        self._sent = threading.Condition()
        self._counting = threading.Lock()
        self._sending: str | None = None
        self._failures = 0
        self._apis: dict[Home | Server, Api] = {}
        threading.Thread(target=self._run, daemon=True, name="atoll tell").start()
        atexit.register(self.finish)

    @classmethod
    def of_process(cls) -> Teller:
        """Return the process's teller. A forked child gets its own."""
        one = cls._one
        if one is None or one._pid != os.getpid():
            with cls._lock:
                one = cls._one
                if one is None or one._pid != os.getpid():
                    one = cls._one = Teller()
        return one

    @classmethod
    def has(cls, sandbox_id: str) -> bool:
        """Tell whether something is left about a sandbox."""
        one = cls._one
        return one is not None and one._pid == os.getpid() and one._has(sandbox_id)

    def add(
        self, where: Home | Server, sandbox_id: str, line: ToldLine, content: bytes | Hashed | None = None
    ) -> None:
        """Keep a line until it is sent. Returns at once.

        Args:
            content: What was copied, or what returns its hash when it is asked. The thread hashes it.
        """
        told = _Told(where, sandbox_id, caller(), line, content)
        size = len(content) if isinstance(content, bytes) else 0
        if len(self._lines) >= _LINES_MOST:
            self._count_dropped(told, 1)
            return
        if size:
            with self._counting:
                fits = size <= _CONTENT_BYTES_MOST - self._content_bytes
                self._content_bytes += size if fits else 0
            told = told if fits else told._replace(content=None)
        self._lines.append(told)
        if not self._some.is_set():
            self._some.set()

    def finish(self, sandbox_id: str | None = None) -> None:
        """Send what is left, of one sandbox or of all, and wait for that: two seconds at most, and no second try."""
        if self._pid != os.getpid() or not self._has(sandbox_id):
            return
        end, failures = time.monotonic() + _LAST_S, self._failures
        self._hurry.set()
        with self._sent:
            while self._has(sandbox_id) and self._failures == failures:
                left_s = end - time.monotonic()
                if left_s <= 0:
                    break
                self._some.set()
                self._sent.wait(left_s)
        self._hurry.clear()

    def _has(self, sandbox_id: str | None) -> bool:
        if sandbox_id is None:
            return bool(self._lines) or self._sending is not None
        # a copy, because others add to it meanwhile
        waiting = self._lines.copy()
        return self._sending == sandbox_id or any(told.sandbox_id == sandbox_id for told in waiting)

    def _count_dropped(self, told: _Told, count: int) -> None:
        with self._counting:
            self._dropped[told.group] = self._dropped.get(told.group, 0) + count

    def _run(self) -> None:
        while True:
            self._some.wait()
            self._hurry.wait(_TOGETHER_S)
            self._some.clear()
            while self._lines:
                is_told = self._send_next()
                with self._sent:
                    self._failures += not is_told
                    self._sent.notify_all()
                if not is_told:
                    self._wait_again()
                    break

    def _wait_again(self) -> None:
        time.sleep(_LEAST_S)  # whoever is in a hurry has left by then
        self._hurry.wait(_AGAIN_S)
        self._some.set()

    def _send_next(self) -> bool:
        """Send the lines at the front that belong together. Returns False if there is nobody to tell just now."""
        taken = self._taken()
        first = taken[0]
        with self._counting:
            dropped = self._dropped.pop(first.group, 0)
        request = ToldRequest(lines=tuple(map(_with_hash, taken)), dropped=dropped)
        try:
            CALLS_FOR.set(first.caller)
            api = self._api(first.where)
            api.send("POST", f"/v1/sandboxes/{first.sandbox_id}/told", request)
        except _PASSING:
            if dropped:
                self._count_dropped(first, dropped)
            self._lines.extendleft(
                told._replace(line=line, content=None)
                for told, line in zip(reversed(taken), reversed(request.lines), strict=True)
            )
            return False
        except Exception:
            # the sandbox is gone, or an older supervisor does not want to know: later lines must still go
            pass
        finally:
            self._sending = None
        return True

    def _taken(self) -> list[_Told]:
        self._sending = self._lines[0].sandbox_id
        taken = [self._lines.popleft()]
        size = _size(taken[0].line)
        while self._lines and len(taken) < TOLD_LINES_MOST:
            told = self._lines[0]
            size += _size(told.line)
            if told.group != taken[0].group or size > _REQUEST_BYTES:
                break
            taken.append(self._lines.popleft())
        held = sum(len(told.content) for told in taken if isinstance(told.content, bytes))
        with self._counting:
            self._content_bytes -= held
        return taken

    def _api(self, where: Home | Server) -> Api:
        api = self._apis.get(where)
        if api is None:
            for old in self._apis.values():
                old.close()
            self._apis.clear()
            api = self._apis[where] = api_of(where, kept=1)
        return api


class Digest:
    """Hashes what passes, in a thread of its own if it is much.

    Leaving it as a context ends the thread.
    """

    def __init__(self) -> None:
        import hashlib

        self.size = 0
        self.complete = False
        self._hash = hashlib.sha256()
        self._pieces: _Pieces | None = None

    def __enter__(self) -> Digest:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pieces is not None:
            self._pieces.end()

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self.size += len(piece)
        if self._pieces is None:
            if self.size <= _PLAIN_BYTES:
                self._hash.update(piece)
                return
            self._pieces = _Pieces(self._hash.update)
        self._pieces.put(piece)

    def hashed(self) -> str | None:
        """Return the hash when all is hashed; None if something is missing."""
        if self._pieces is not None:
            self._pieces.thread.join()
        return self._hash.hexdigest() if self.complete else None


_PLAIN_BYTES = 256 << 10
_PIECES_MOST = 64


class _Pieces:
    """Passes pieces on in a thread."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        import queue

        self._queue: queue.Queue[bytes | None] = queue.Queue(_PIECES_MOST)
        self._take = take
        self.thread = threading.Thread(target=self._run, daemon=True, name="atoll hash")
        self.thread.start()

    def put(self, piece: bytes) -> None:
        self._queue.put(piece)

    def end(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while (piece := self._queue.get()) is not None:
            self._take(piece)


def program_line(program: Program) -> ToldLine:
    """Return the line of a program that has begun."""
    return ToldLine(
        act="command.started",
        at=time.time(),
        argv=tuple(part[:TOLD_CHARACTERS] for part in (program.argv or ())[:_ARGUMENTS_MOST]),
        line=None if program.line is None else program.line[:TOLD_CHARACTERS],
        user=program.user,
        trace=trace_of(program.env.get("TRACEPARENT", "")),
    )


def code_line(code: str) -> ToldLine:
    """Return the line of code that begins to run."""
    return ToldLine(act="code.run", at=time.time(), line=code[:TOLD_CHARACTERS])


def file_line(path: str, size: int | None, user: str | None, *, written: bool) -> ToldLine:
    """Return the line of a file that was copied."""
    act: ToldAct = "file.written" if written else "file.read"
    return ToldLine(act=act, at=time.time(), path=path[:TOLD_CHARACTERS], bytes=size, user=user)


def _with_hash(told: _Told) -> ToldLine:
    content = told.content
    if content is None:
        return told.line
    if isinstance(content, bytes):
        import hashlib

        return msgspec.structs.replace(told.line, sha256=hashlib.sha256(content).hexdigest())
    return msgspec.structs.replace(told.line, sha256=content())


def _size(line: ToldLine) -> int:
    return len(line.line or "") + len(line.path or "") + sum(map(len, line.argv))
