"""Input and output for the sync SDK: blocking sockets, and threads only where two things run at once.

It has the same names as ``_io_async``. Code that uses them is written for one and generated for the other.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Never, ParamSpec, TypeVar

from atoll.errors import UnsupportedError
from atoll.sdk import _hangup
from atoll.sdk._bytes import CHUNK_BYTES, as_bytes

if TYPE_CHECKING:
    import threading

_P = ParamSpec("_P")
_R = TypeVar("_R")
_JOIN_S = 5.0
_WAKE_S = 1.0

sleep = time.sleep


class Stream:
    """A connected stream socket. One thread may receive while another sends."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._read = b""

    def receive(self, timeout_s: float | None) -> bytes:
        """Wait for bytes and return what is there; ``b""`` when the peer has ended.

        Raises:
            TimeoutError: ``timeout_s`` passed.
        """
        if self._read:
            data, self._read = self._read, b""
            return data
        self._socket.settimeout(timeout_s)
        return self._socket.recv(CHUNK_BYTES)

    def send(self, data: bytes, timeout_s: float | None) -> None:
        """Send all of ``data``.

        Raises:
            TimeoutError: ``timeout_s`` passed. A part may have been sent.
        """
        self._socket.settimeout(timeout_s)
        self._socket.sendall(data)

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
        """End the connection from any thread. A blocked ``receive`` or ``send`` returns."""
        with contextlib.suppress(OSError):  # it may be closed, or may never have been connected
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()


def connect_unix(path: Path, timeout_s: float) -> Stream:
    """Connect to a unix stream socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(str(path))
    except BaseException:
        sock.close()
        raise
    return Stream(sock)


def ask_dial_socket(path: Path, packet: bytes, limit_bytes: int, timeout_s: float) -> tuple[bytes, list[int]]:
    """Send one packet to a SOCK_SEQPACKET socket and return the answer with the descriptors sent along.

    Raises:
        ConnectionResetError: The other side ended.
        TimeoutError: ``timeout_s`` passed.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.settimeout(timeout_s)
        channel.connect(str(path))
        channel.send(packet)
        answer, descriptors, _, _ = socket.recv_fds(channel, limit_bytes, 1, socket.MSG_CMSG_CLOEXEC)
    if not answer:
        raise ConnectionResetError(f"{path} was closed before it answered")
    return answer, list(descriptors)


class Listener:
    """A listener on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = self._socket.getsockname()[1]
        self._aborted = False

    def accept(self) -> Stream:
        """Wait for a connection.

        Raises:
            OSError: The listener was aborted.
        """
        accepted, _ = self._socket.accept()
        if self._aborted:
            accepted.close()
            raise ConnectionAbortedError("the listener was aborted")
        return Stream(accepted)

    def abort(self) -> None:
        """Make ``accept`` fail, in any thread."""
        self._aborted = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed already; or not Linux, where nothing but a connection wakes it
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), _WAKE_S).close()

    def close(self) -> None:
        """Close the listener. Idempotent."""
        self._socket.close()


class Background:
    """Runs functions beside the caller's code. Leaving it waits for them, ``wait_s`` seconds at most.

    The caller first makes them end, by aborting what they wait for.
    """

    def __init__(self, wait_s: float = _JOIN_S) -> None:
        self._wait_s = wait_s
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = time.monotonic() + self._wait_s
        # One function may start another before it ends.
        while (left_s := end - time.monotonic()) > 0:
            alive = next((thread for thread in self._threads if thread.is_alive()), None)
            if alive is None:
                return
            alive.join(left_s)

    def start(self, function: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Run ``function`` in the background. It must not raise."""
        import threading

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=function, args=args, kwargs=kwargs, daemon=True, name="atoll")
        self._threads.append(thread)
        thread.start()


def both(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    """Call two functions with their arguments at the same time, and wait for both. They must not raise."""
    import threading

    function, *args = first
    beside = threading.Thread(target=function, args=args, daemon=True, name="atoll")
    beside.start()
    function, *args = second
    function(*args)
    beside.join()


def shielded(timeout_s: float) -> contextlib.AbstractContextManager[object]:
    """Shield clean-up from a cancellation. A thread is never cancelled, so this does nothing."""
    return contextlib.nullcontext(timeout_s)


def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call a blocking function."""
    return function(*args, **kwargs)


def call(callback: Callable[..., Any], *args: Any) -> Any:
    """Call a user's callback, and return its result."""
    return callback(*args)


def mcp_streams(start: Callable[[], Any], on_stderr: Callable[[str], Any] | None) -> Never:
    """Refuse: the official SDK of the protocol is async only."""
    raise UnsupportedError("the streams of an MCP server are async", hint="use AsyncSandbox, or give a port")


def pieces(data: Iterable[bytes | str] | BinaryIO) -> Iterator[bytes]:
    """Iterate over the content of a file opened for reading, or of an iterable. Text is sent as UTF-8."""
    read = getattr(data, "read", None)
    if read is None:
        for piece in data:
            yield as_bytes(piece)
        return
    while piece := read(CHUNK_BYTES):
        yield as_bytes(piece)


def user_socket(descriptor: int) -> socket.socket:
    """Return a connected socket for the user's own code: blocking."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(True)
    return sock
