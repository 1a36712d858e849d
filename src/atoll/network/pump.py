"""Moves bytes from one socket to another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from atoll.network.room import Room

_BUFFER_BYTES = 1 << 18
_TURNS = 4
# Who sends less at once seldom has sent more by the time that this is passed on.
_SHORT_BYTES = 1 << 14

# One for all pumps: it is empty between two turns of the event loop.
_buffer = memoryview(bytearray(_BUFFER_BYTES))


class Pump:
    """One direction of a connection.

    It holds at most one buffer of bytes that the target has not accepted yet.

    Args:
        source: Where bytes come from; non-blocking.
        target: Where they go; non-blocking. Its sending side is shut down when the source has ended.
        room: How much data the connections of this guest may hold together.
        ended: Called once at the end: with None if all bytes went through, otherwise with the error.
    """

    def __init__(
        self,
        source: socket.socket,
        target: socket.socket,
        room: Room,
        ended: Callable[[OSError | None], None],
    ) -> None:
        self._source = source
        self._target = target
        # The loop looks sockets up by these, and describes a socket that it does not know yet at some length.
        self._source_fd = source.fileno()
        self._target_fd = target.fileno()
        self._room = room
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._running = False
        self._done = False
        self._moved = False

    @property
    def moved(self) -> bool:
        """Whether it has taken bytes from its source."""
        return self._moved

    @property
    def holds_bytes(self) -> bool:
        """Whether it has bytes that its target has not accepted yet."""
        return bool(self._rest)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done

    def start(self) -> None:
        """Begin, or continue after ``stop``. Idempotent."""
        if self._running or self._done:
            return
        self._running = True
        if self._rest:
            self._loop.add_writer(self._target_fd, self._on_writable)
        else:
            self._loop.add_reader(self._source_fd, self._on_readable)

    def stop(self) -> None:
        """Move nothing until ``start``. Idempotent."""
        if not self._running:
            return
        self._running = False
        if self._rest:
            self._loop.remove_writer(self._target_fd)
        else:
            self._loop.remove_reader(self._source_fd)

    def push(self) -> bool:
        """Move one piece although it is stopped. Returns whether all of it has gone on; the end never does so."""
        if self._running or self._done or self._rest:
            return False
        try:
            count = self._source.recv_into(_buffer, self._room.piece(_BUFFER_BYTES))
            sent = self._send(_buffer[:count])
        except OSError:  # it is told when it starts again
            return False
        self._moved |= count > 0
        self._keep(bytes(_buffer[sent:count]))
        return 0 < count == sent

    def _on_readable(self) -> None:
        try:
            for _ in range(_TURNS):
                count = self._source.recv_into(_buffer, self._room.piece(_BUFFER_BYTES))
                if not count:
                    return self._finish()
                self._moved = True
                sent = self._send(_buffer[:count])
                if sent < count:
                    self.stop()
                    self._keep(bytes(_buffer[sent:count]))
                    return self.start()
                if count < _SHORT_BYTES:
                    return None
        except BlockingIOError:
            return None
        except OSError as error:
            self._end(error)
        return None

    def _on_writable(self) -> None:
        try:
            sent = self._send(self._rest)
        except OSError as error:
            return self._end(error)
        if sent == len(self._rest):
            self.stop()
            self._keep(b"")
            return self.start()
        self._keep(self._rest[sent:])
        return None

    def _keep(self, rest: bytes) -> None:
        self._room.give(len(self._rest))
        self._room.take(len(rest))
        self._rest = rest

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._target.send(data)
        except BlockingIOError:
            return 0

    def _finish(self) -> None:
        try:
            self._target.shutdown(socket.SHUT_WR)
        except OSError as error:
            return self._end(error)
        return self._end(None)

    def _end(self, error: OSError | None) -> None:
        self.stop()
        self._done = True
        self._keep(b"")
        self._ended(error)
