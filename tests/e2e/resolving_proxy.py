"""A resolver of the tests' own: a proxy at which every name is a port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

_BOUND_S = 300.0


@contextlib.contextmanager
def names_on(port: int | Mapping[int, int], heads: list[bytes] | None = None) -> Iterator[str]:
    """The address of a CONNECT proxy that takes every host to `port` here; clients know it as HTTPS_PROXY.

    `port` may say which port here stands for which one of the hosts. What clients ask is added to `heads`.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threads: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                near, _ = listener.accept()
                sockets.append(near)
                thread = threading.Thread(
                    target=_join, args=(near, port, sockets, [] if heads is None else heads)
                )
                threads.append(thread)
                thread.start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for each in sockets:
            with contextlib.suppress(OSError):  # ended before
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _join(
    near: socket.socket, port: int | Mapping[int, int], sockets: list[socket.socket], heads: list[bytes]
) -> None:
    with near, contextlib.suppress(OSError):
        near.settimeout(_BOUND_S)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = near.recv(1)
            if not piece:
                return
            head += piece
        heads.append(head)
        asked = int(head.split()[1].rpartition(b":")[2])
        here = port if isinstance(port, int) else port[asked]
        with socket.create_connection(("127.0.0.1", here), timeout=_BOUND_S) as far:
            sockets.append(far)
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(far, near))
            back.start()
            _pump(near, far)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
