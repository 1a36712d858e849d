"""HTTP/1.1 connections to the supervisor and to guest agents, kept for reuse and replaced when they end."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import BinaryIO

from atoll.errors import AgentError, AtollError, StateError
from atoll.guest import GuestRequest, HttpClient, HttpHead
from atoll.sdk._bytes import check_upload
from atoll.sdk._deadline import Deadline
from atoll.sdk._io_async import Stream, pieces

Opener = Callable[[float | None], Awaitable[Stream]]
Explain = Callable[[OSError], Awaitable[AtollError]]
Upload = Iterable[bytes | str] | AsyncIterable[bytes | str] | BinaryIO
Silent = Callable[[], Awaitable[None]]
_KEPT = 8
_LOOK_S = 10.0


class BodyFailedError(Exception):
    """Reports that the caller's own iterable or file failed with ``error`` in the middle of a request."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class AsyncConnection:
    """One connection, for one exchange at a time.

    Calls ``on_silence`` after each ``look_s`` seconds without a byte.
    """

    def __init__(self, stream: Stream, on_silence: Silent | None = None, look_s: float = _LOOK_S) -> None:
        self.stream = stream
        self._on_silence = on_silence
        self._look_s = look_s
        self.http: HttpClient = HttpClient()
        self.used_at: float = 0.0
        self.request_out: bool = False

    async def send(
        self, request: GuestRequest, body: Upload | None, length: int | None, deadline: Deadline
    ) -> None:
        """Send a request. If an answer comes before the request's end, sending stops."""
        self.request_out = False
        head = self.http.request(request, length=length)
        await self.stream.send(head, deadline.left())
        self.request_out = True
        if body is None:
            return
        source = pieces(body)
        while True:
            try:
                piece = await anext(source)
            except StopAsyncIteration:
                break
            except Exception as error:
                raise BodyFailedError(error) from error
            if self.stream.readable():
                return
            if piece:
                await self.stream.send(self.http.data(piece), deadline.left())
        await self.stream.send(self.http.end(), deadline.left())

    async def head(self, deadline: Deadline) -> HttpHead:
        """Wait for the head of the answer, even if the peer sends it in very small pieces."""
        deadline = deadline.for_one_answer()
        while True:
            event = self.http.next_event()
            if isinstance(event, HttpHead):
                return event
            self.http.receive(await self._receive(deadline))

    async def read(self, deadline: Deadline) -> bytes:
        """Wait for the next piece of the answer's body. It is empty at the end."""
        while True:
            event = self.http.next_event()
            if event is not None and not isinstance(event, HttpHead):
                return event.data
            self.http.receive(await self._receive(deadline))

    async def _receive(self, deadline: Deadline) -> bytes:
        left = deadline.left()
        while self._on_silence is not None and (left is None or left > self._look_s):
            try:
                return await self.stream.receive(self._look_s)
            except TimeoutError:
                await self._on_silence()
            bound = deadline.left()
            left = bound if left is None or bound is None else min(left - self._look_s, bound)
        return await self.stream.receive(left)

    def close(self) -> None:
        """Close it. Idempotent."""
        self.stream.close()


class AsyncAnswer:
    """An answer whose body is read as it arrives. Its owner reads it to the end or closes it."""

    def __init__(
        self, pool: AsyncPool, connection: AsyncConnection, head: HttpHead, deadline: Deadline
    ) -> None:
        self.status: int = head.status
        self.headers: dict[str, str] = head.headers
        self.deadline = deadline
        self._pool = pool
        self._connection: AsyncConnection | None = connection
        self.aborted: bool = False

    @property
    def cut(self) -> bool:
        """Tell whether the connection has ended, but not by this side."""
        return self._connection is not None and not self.aborted and self._connection.stream.hung_up()

    async def read(self) -> bytes:
        """Wait for the next piece of the body. It is empty at the end, and at every read after that.

        Raises:
            StateError: The answer was aborted.
            AtollError: The peer is gone, or was silent for too long. The pool's owner picks the class.
        """
        connection = self._connection
        if connection is None:
            return b""
        try:
            data = await connection.read(self.deadline)
        except OSError as error:
            self.close()
            if self.aborted:
                raise StateError("this program aborted the stream") from None
            raise await self._pool.explain(error) from error
        except BaseException:
            self.close()
            raise
        if not data:
            self._connection = None
            self._pool.give(connection)
        return data

    async def read_all(self, limit_bytes: int) -> bytes:
        """Read the body to its end.

        Raises:
            AgentError: The body has more than ``limit_bytes``.
        """
        # not a list of pieces: each piece costs some fifty bytes of overhead, and may hold a single byte
        read = bytearray()
        while data := await self.read():
            if len(read) + len(data) > limit_bytes:
                self.close()
                raise AgentError(f"the answer has more than {limit_bytes} bytes", hint="read it as a stream")
            read += data
        return bytes(read)

    def abort(self) -> None:
        """Make a waiting ``read`` end, in any thread or task."""
        if self._connection is not None:
            self.aborted = True
            self._connection.stream.abort()

    def close(self) -> None:
        """Drop the unread rest. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class AsyncPool:
    """Keeps connections to one peer.

    An idle one is used again unless the peer closed it or ``idle_s`` seconds passed. The pool keeps ``kept``
    idle connections at most. ``opener`` gets the seconds that the peer may take. While a peer says nothing,
    ``on_silence`` is called every ``look_s`` seconds.
    """

    def __init__(
        self,
        opener: Opener,
        explain: Explain,
        *,
        idle_s: float,
        kept: int = _KEPT,
        on_silence: Silent | None = None,
        look_s: float = _LOOK_S,
    ) -> None:
        self._open = opener
        self._on_silence = on_silence
        self._look_s = look_s
        self.explain = explain
        self._idle_s = idle_s
        self._kept = kept
        self._idle: list[AsyncConnection] = []
        self._pid = os.getpid()

    async def ask(
        self,
        request: GuestRequest,
        deadline: Deadline,
        *,
        body: Upload | None = None,
        length: int | None = None,
        repeatable: bool = False,
    ) -> AsyncAnswer:
        """Send a request and wait for the head of its answer.

        A kept connection that turns out to be closed is replaced once. This requires that the peer cannot
        have seen the request, or that ``repeatable`` says that seeing it twice does no harm. If so, a request
        is also sent once more if its fresh connection ends before the answer, as when the peer just ends.
        """
        try:
            return await self._asked(request, deadline, body, length, repeatable)
        except BodyFailedError as failed:
            raise failed.error

    async def _asked(
        self,
        request: GuestRequest,
        deadline: Deadline,
        body: Upload | None,
        length: int | None,
        repeatable: bool,
    ) -> AsyncAnswer:
        if body is not None:
            check_upload(body)
        kept = self._take()
        if kept is not None:
            try:
                return await self._exchange(kept, request, body, length, deadline)
            except ConnectionError as error:
                if kept.request_out and not (repeatable and body is None):
                    raise await self.explain(error) from error
            except OSError as error:
                raise await self.explain(error) from error
        for is_last in (not (repeatable and body is None), True):
            try:
                stream = await self._open(deadline.left())
            except TimeoutError as error:
                raise await self.explain(error) from error
            connection = AsyncConnection(stream, self._on_silence, self._look_s)
            deadline.restart()
            try:
                return await self._exchange(connection, request, body, length, deadline)
            except ConnectionError as error:
                if is_last:
                    raise await self.explain(error) from error
            except OSError as error:
                raise await self.explain(error) from error
        raise AssertionError("the second try is the last one")

    async def _exchange(
        self,
        connection: AsyncConnection,
        request: GuestRequest,
        body: Upload | None,
        length: int | None,
        deadline: Deadline,
    ) -> AsyncAnswer:
        try:
            try:
                await connection.send(request, body, length, deadline)
            except ConnectionError:
                # a peer that refuses a body answers and closes; its answer counts, if there is one
                if not connection.request_out:
                    raise
            return AsyncAnswer(self, connection, await connection.head(deadline), deadline)
        except BaseException:
            connection.close()
            raise

    def _take(self) -> AsyncConnection | None:
        if self._pid != os.getpid():
            # a forked child must not speak on its parent's connections
            self._pid = os.getpid()
            self.close()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() - connection.used_at < self._idle_s and not connection.stream.readable():
                return connection
            connection.close()
        return None

    def give(self, connection: AsyncConnection) -> None:
        """Take back a connection whose exchange is complete."""
        if connection.http.reusable and len(self._idle) < self._kept:
            connection.used_at = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close all idle connections. The pool stays usable."""
        while self._idle:
            self._idle.pop().close()
