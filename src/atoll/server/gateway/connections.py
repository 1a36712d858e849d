"""Connections into sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket

from atoll.server.gateway.hosts import Target

_SMALL_BYTES = 64 << 10
LARGE_BYTES = 512 << 10
_IN_TURN_BYTES = 4 << 20
_CLOSE_WAIT = 8


class Connection:
    """A connection to a port of a sandbox."""

    def __init__(self, sock: socket.socket, target: Target, *, kept: bool = False) -> None:
        self.target = target
        self.kept = kept
        self.idle_since = 0.0
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._bytes = _SMALL_BYTES
        self._unheard = 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``.

        Raises:
            OSError: The server inside no longer reads.
        """
        await self._loop.sock_sendall(self._socket, data)

    async def receive(self, most_bytes: int = LARGE_BYTES) -> bytes:
        """Wait for bytes, ``most_bytes`` at most. Returns ``b""`` at the end.

        Raises:
            OSError: The connection broke.
        """
        # waiting bytes are returned at once, so without a turn for others an endless sender would block
        # everybody else
        self._unheard += min(self._bytes, most_bytes)
        if self._unheard > _IN_TURN_BYTES or most_bytes < self._bytes:
            self._unheard = 0
            await asyncio.sleep(0)
        data = await self._loop.sock_recv(self._socket, min(self._bytes, most_bytes))
        if len(data) == self._bytes:
            self._bytes = LARGE_BYTES
        return data

    def has_ended_by_itself(self) -> bool:
        """Tell whether the server inside closed the connection, after ``receive`` returned nothing.

        When a sandbox is killed or put to sleep, the supervisor shuts down this very socket. That would
        otherwise look the same.
        """
        try:
            return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSE_WAIT
        except OSError:
            return False

    def is_quiet(self) -> bool:
        """Tell whether an idle connection is still good.

        A connection that a server closed, or sent data on unasked, is readable and so not good.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        """End the connection from any task. A waiting ``receive`` returns."""
        with contextlib.suppress(OSError):  # it may have ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()
