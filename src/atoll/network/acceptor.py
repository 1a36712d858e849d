"""Accepts connections, also when descriptors run out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_ACCEPTS = 64
_PAUSE_S = 0.25


class Acceptor:
    """Hands over each connection that comes to a listener.

    Args:
        listener: Non-blocking; it belongs to the acceptor from now on.
        take: Called with the connection, non-blocking, and the address it came from.
    """

    def __init__(
        self, listener: socket.socket, take: Callable[[socket.socket, tuple[str, int]], None]
    ) -> None:
        self._listener = listener
        self._take = take
        self._resumption: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener, self._on_connection)

    def close(self) -> None:
        """Accept no more and close the listener."""
        if self._resumption:
            self._resumption.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _on_connection(self) -> None:
        try:
            for _ in range(_ACCEPTS):
                connection, peer = self._listener.accept()
                connection.setblocking(False)
                self._take(connection, peer)
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # Out of descriptors or memory: the connection stays in the queue, so look again a little later.
            self._loop.remove_reader(self._listener)
            self._resumption = self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._on_connection)
