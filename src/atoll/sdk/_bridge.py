"""Connections to a server as sockets of this process.

What is a passed descriptor on one machine is here one end of a socket pair. A thread of the process carries the
bytes between the other end and a TLS connection. So all that is written for sockets works unchanged, for callers
with and without an event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar
from urllib.parse import urlencode

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from atoll.errors import DeniedError, SupervisorError
from atoll.protocol import DIAL_LIMIT_BYTES, TUNNEL_END, TUNNEL_PROTOCOL, DialAnswer, decode_answer
from atoll.sdk._hangup import is_closed
from atoll.sdk._server import Server

_BYTES = 256 << 10
_LOOK_S = 0.5
_END_S = 1.0

_Value = TypeVar("_Value")
_Dialled = tuple[DialAnswer, socket.socket | None]
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bridge:
    """Carries bytes in a thread of its own, which begins at the first connection and ends with the process."""

    _one: Bridge | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        # All that runs in the loop, so that none of it is left when the process ends.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False
        self._giving = threading.Lock()
        threading.Thread(target=self._loop.run_forever, name="atoll bridge", daemon=True).start()
        atexit.register(self._end)

    @classmethod
    def of_process(cls) -> Bridge:
        """Return the process's bridge. A forked child gets its own."""
        with cls._lock:
            if cls._one is None or cls._one._pid != os.getpid():
                cls._one = Bridge()
            return cls._one

    def connect(self, server: Server, timeout_s: float) -> socket.socket:
        """Connect to a server's API.

        Raises:
            OSError: The server cannot be reached in time, or its certificate is not trusted.
        """
        return self._done(self._connected(server), timeout_s)

    def dial(self, server: Server, sandbox: str, port: int, timeout_s: float) -> _Dialled:
        """Open a tunnel to a port of a sandbox. The socket is None if the answer is an error.

        Raises:
            OSError: The server cannot be reached in time, or its certificate is not trusted.
            DeniedError: The key is wrong.
            SupervisorError: The server speaks something else.
        """
        return self._done(self._dialled(server, sandbox, port), timeout_s)

    def _end(self) -> None:
        """End all connections. Python would report those that it finds under way at the end of the process."""
        if self._pid != os.getpid():
            return
        with self._giving:
            self._is_over = True
            # The loop begins it after all that it was given before, and is given nothing after it.
            ending = asyncio.run_coroutine_threadsafe(self._ended(), self._loop)
        with contextlib.suppress(FutureTimeoutError):
            ending.result(_END_S)

    async def _ended(self) -> None:
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, work: Coroutine[Any, Any, _Value], timeout_s: float) -> _Value:
        with self._giving:
            if self._is_over:
                work.close()
                raise ConnectionResetError("this process ends")
            # The loop keeps the timeout. A timeout here could lose a socket that has just connected, still open.
            running = asyncio.run_coroutine_threadsafe(self._kept(work, timeout_s), self._loop)
        try:
            return running.result()
        except TimeoutError:
            raise TimeoutError("the server did not answer in time") from None
        except CancelledError:
            raise ConnectionResetError("the connection was given up") from None

    async def _kept(self, work: Awaitable[_Value], timeout_s: float) -> _Value:
        self._keep(asyncio.current_task())
        async with asyncio.timeout(timeout_s):
            return await work

    def _carry(self, work: Coroutine[Any, Any, None]) -> None:
        self._keep(self._loop.create_task(work))

    def _keep(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connected(self, server: Server) -> socket.socket:
        far = await _open(server)
        try:
            outer, _, near = await _pair()
        except BaseException:
            far[1].close()
            raise
        self._carry(_carried(near, far))
        return outer

    async def _dialled(self, server: Server, sandbox: str, port: int) -> _Dialled:
        far = await _open(server)
        tunnel = _Tunnel(far)
        try:
            answer = await tunnel.opened(server, sandbox, port)
            if answer.error is not None:
                far[1].close()
                return answer, None
            outer, inner, near = await _pair()
        except BaseException:
            far[1].close()
            raise
        self._carry(tunnel.carried(near, inner))
        return answer, outer


async def _open(server: Server) -> _Streams:
    host, port = server.address
    context = _tls(server.ca, _written(server.ca)) if server.tls else None
    return await asyncio.open_connection(host, port, ssl=context, limit=_BYTES)


@functools.lru_cache(maxsize=8)
def _tls(ca: str | None, written: tuple[int, int] | None) -> ssl.SSLContext:
    """Return what checks certificates. Reading the authorities of this machine takes long, so it is done once."""
    del written
    context = ssl.create_default_context(cafile=ca)
    if ca is not None:
        context.load_default_certs()
    return context


def _written(ca: str | None) -> tuple[int, int] | None:
    """Return what changes when a file with an authority is replaced."""
    if ca is None:
        return None
    status = os.stat(ca)
    return status.st_mtime_ns, status.st_ino


async def _pair() -> tuple[socket.socket, socket.socket, _Streams]:
    """Return the end for the user, and the other one with its streams."""
    outer, inner = socket.socketpair()
    try:
        inner.setblocking(False)
        return outer, inner, await asyncio.open_connection(sock=inner, limit=_BYTES)
    except BaseException:
        outer.close()
        inner.close()
        raise


async def _carried(near: _Streams, far: _Streams) -> None:
    """Carry the bytes of an HTTP connection until one side ends it. TLS has no half of a connection."""
    try:
        await _first_of(_copied(near[0], far[1]), _copied(far[0], near[1]))
    finally:
        near[1].close()
        far[1].close()


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_BYTES):
            target.write(data)
            await target.drain()


async def _first_of(*works: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Tunnel:
    """A WebSocket to a port of a sandbox, see ``server/remote/dial.py`` for its messages."""

    def __init__(self, far: _Streams) -> None:
        self._reader, self._writer = far
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._waiting: deque[Event] = deque()
        self._ended = False

    async def opened(self, server: Server, sandbox: str, port: int) -> DialAnswer:
        """Shake hands, and return how the server answers the wish for a connection."""
        target = f"/atoll/v1/dial?{urlencode({'sandbox': sandbox, 'port': port})}"
        opening = Request(
            host=server.host,
            target=target,
            subprotocols=[TUNNEL_PROTOCOL],
            extra_headers=[(b"x-api-key", server.key.encode())],
        )
        self._writer.write(self._socket.send(opening))
        text = ""
        try:
            while True:
                event = await self._event()
                if isinstance(event, RejectConnection):
                    raise _rejected(server, event.status_code)
                if isinstance(event, AcceptConnection):
                    continue
                if not isinstance(event, TextMessage) or len(text) > DIAL_LIMIT_BYTES:
                    raise SupervisorError(f"{server.url} does not answer as an atoll server")
                text += event.data
                if event.message_finished:
                    return decode_answer(text.encode())
        except RemoteProtocolError:
            raise SupervisorError(f"{server.url} does not answer as an atoll server") from None

    async def _event(self) -> Event:
        """Wait for the next event.

        Raises:
            ConnectionResetError: The server ended the connection.
        """
        while not self._waiting:
            data = await self._reader.read(_BYTES)
            if not data:
                raise ConnectionResetError("the server ended the connection")
            self._socket.receive_data(data)
            for event in self._socket.events():
                if isinstance(event, Ping):
                    self._writer.write(self._socket.send(event.response()))
                else:
                    self._waiting.append(event)
        return self._waiting.popleft()

    async def carried(self, near: _Streams, inner: socket.socket) -> None:
        """Carry bytes until both directions have ended, the tunnel closes, or this side closes its socket."""
        tasks = [
            asyncio.ensure_future(self._inwards(near[0], inner)),
            asyncio.ensure_future(self._outwards(near[1])),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            near[1].close()
            self._writer.close()

    async def _inwards(self, near: asyncio.StreamReader, inner: socket.socket) -> None:
        while data := await near.read(_BYTES):
            self._writer.write(self._socket.send(BytesMessage(data=data)))
            await self._writer.drain()
        self._writer.write(self._socket.send(TextMessage(data=TUNNEL_END)))
        await self._writer.drain()
        while not self._ended:
            if is_closed(inner):
                raise ConnectionResetError("this side closed its socket")
            await asyncio.sleep(_LOOK_S)

    async def _outwards(self, near: asyncio.StreamWriter) -> None:
        while True:
            event = await self._event()
            if isinstance(event, BytesMessage):
                near.write(bytes(event.data))
                await near.drain()
            elif isinstance(event, TextMessage):
                self._ended = True
                near.write_eof()
                return
            elif isinstance(event, CloseConnection):
                raise ConnectionResetError("the connection inside was cut")


def _rejected(server: Server, status: int) -> Exception:
    if status in (401, 403):
        return DeniedError(f"{server.url} does not take the key", hint="`atoll login` takes another one")
    return SupervisorError(f"{server.url} answers the wish for a connection with status {status}")
