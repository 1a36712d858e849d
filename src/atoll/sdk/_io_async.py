"""Input and output for the async SDK, on anyio: asyncio and trio both work.

It has the same names as ``_io_sync``. Code that uses them is written for one and generated for the other.
"""

from __future__ import annotations

import contextlib
import inspect
import select
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from atoll.sdk import _hangup
from atoll.sdk._bytes import CHUNK_BYTES, as_bytes

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from atoll.sdk._async.process import AsyncProcess
    from atoll.sdk._mcp_streams import Streams

_P = ParamSpec("_P")
_R = TypeVar("_R")

sleep = anyio.sleep
_READY_RECEIVES = 4


async def _wait(
    until: Callable[[socket.socket], Awaitable[None]], sock: socket.socket, end: float | None
) -> None:
    with anyio.fail_after(None if end is None else max(0.0, end - time.monotonic())):
        await until(sock)


def _end(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


class Stream:
    """A connected stream socket. One task may receive while another sends."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._ready = 0
        self._read = b""

    async def receive(self, timeout_s: float | None) -> bytes:
        """Wait for bytes and return what is there; ``b""`` when the peer has ended.

        Raises:
            TimeoutError: ``timeout_s`` passed.
        """
        if self._read:
            data, self._read = self._read, b""
            return data
        end = _end(timeout_s)
        self._ready += 1
        if self._ready > _READY_RECEIVES:
            # a peer that floods must not block the event loop, nor outlast a cancellation
            self._ready = 0
            await anyio.lowlevel.checkpoint()
        while True:
            try:
                return self._socket.recv(CHUNK_BYTES)
            except BlockingIOError:
                self._ready = 0
                await _wait(anyio.wait_readable, self._socket, end)

    async def send(self, data: bytes, timeout_s: float | None) -> None:
        """Send all of ``data``.

        Raises:
            TimeoutError: ``timeout_s`` passed. A part may have been sent.
        """
        end, rest = _end(timeout_s), memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await _wait(anyio.wait_writable, self._socket, end)

    def send_end(self) -> None:
        """Tell the peer that nothing more follows."""
        with contextlib.suppress(OSError):  # the peer may be gone, which is also an end
            self._socket.shutdown(socket.SHUT_WR)

    def readable(self) -> bool:
        """Tell whether ``receive`` would return at once, with bytes or because the peer closed."""
        if self._read:
            return True
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([self._socket], [], [], 0)[0])
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def hung_up(self) -> bool:
        """Tell whether the connection has ended both ways, even if bytes are left to receive."""
        if _hangup.TELLS:
            return _hangup.hangs_up(self._socket)
        read, ended = _hangup.rest(self._socket)
        self._read += read
        return ended

    def abort(self) -> None:
        """End the connection from any task. A waiting ``receive`` or ``send`` returns."""
        with contextlib.suppress(OSError):  # it may be closed, or may never have been connected
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()


async def _connect(sock: socket.socket, path: Path, timeout_s: float) -> None:
    """Connect. Nothing signals when a full backlog of a unix socket has room, so this tries again."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return sock.connect(str(path))
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError(f"{path} accepts no connection") from None
            await anyio.sleep(0.01)


async def connect_unix(path: Path, timeout_s: float) -> Stream:
    """Connect to a unix stream socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await _connect(sock, path, timeout_s)
    except BaseException:
        sock.close()
        raise
    return Stream(sock)


async def ask_dial_socket(
    path: Path, packet: bytes, limit_bytes: int, timeout_s: float
) -> tuple[bytes, list[int]]:
    """Send one packet to a SOCK_SEQPACKET socket and return the answer with the descriptors sent along.

    Raises:
        ConnectionResetError: The other side ended.
        TimeoutError: ``timeout_s`` passed.
    """
    end = _end(timeout_s)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.setblocking(False)
        await _connect(channel, path, timeout_s)
        channel.send(packet)
        await _wait(anyio.wait_readable, channel, end)
        answer, descriptors, _, _ = socket.recv_fds(channel, limit_bytes, 1, socket.MSG_CMSG_CLOEXEC)
    if not answer:
        raise ConnectionResetError(f"{path} was closed before it answered")
    return answer, list(descriptors)


class Listener:
    """A listener on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    async def accept(self) -> Stream:
        """Wait for a connection.

        Raises:
            OSError: The listener was aborted.
        """
        while True:
            try:
                return Stream(self._socket.accept()[0])
            except BlockingIOError:
                await anyio.wait_readable(self._socket)

    def abort(self) -> None:
        """Make ``accept`` fail, in any task."""
        with contextlib.suppress(OSError):  # closed already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the listener. Idempotent."""
        self._socket.close()


class Background:
    """Runs functions beside the caller's code. Leaving it cancels them and waits."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Background:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            if error is None:
                raise
            # the caller's own error is raised as it is; functions in the background raise none
            raise error from error.__cause__

    def start(self, function: Callable[..., Coroutine[Any, Any, object]], *args: Any) -> None:
        """Run ``function`` in the background. It must not raise."""
        self._group.start_soon(function, *args)


async def both(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    """Call two functions with their arguments at the same time, and wait for both. They must not raise."""
    async with anyio.create_task_group() as group:
        for function, *args in (first, second):
            group.start_soon(function, *args)


def shielded(timeout_s: float) -> contextlib.AbstractContextManager[object]:
    """Shield clean-up from a cancellation of the caller, for ``timeout_s`` seconds at most."""
    return anyio.move_on_after(timeout_s, shield=True)


async def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call a blocking function in a thread. A cancelled caller does not wait for its end."""
    return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs), abandon_on_cancel=True)


async def call(callback: Callable[..., Any], *args: Any) -> Any:
    """Call a user's callback, which may be a coroutine function, and return its result."""
    result = callback(*args)
    return await result if inspect.isawaitable(result) else result


def mcp_streams(
    start: Callable[[], Awaitable[AsyncProcess]], on_stderr: Callable[[str], Any] | None
) -> AbstractAsyncContextManager[Streams]:
    """Return the context that starts a stdio server and gives its streams. Loading it takes long."""
    from atoll.sdk import _mcp_streams

    return _mcp_streams.mcp_streams(start, on_stderr)


async def pieces(
    data: Iterable[bytes | str] | AsyncIterable[bytes | str] | BinaryIO,
) -> AsyncIterator[bytes]:
    """Iterate over the content of a file opened for reading, or of an iterable. Text is sent as UTF-8."""
    read = getattr(data, "read", None)
    if read is not None:
        while piece := await in_thread(read, CHUNK_BYTES):
            yield as_bytes(piece)
    elif isinstance(data, AsyncIterable):
        async for piece in data:
            yield as_bytes(piece)
    else:
        for piece in data:
            yield as_bytes(piece)


def user_socket(descriptor: int) -> socket.socket:
    """Return a connected socket for the user's own code: non-blocking, as asyncio and trio need it."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock
