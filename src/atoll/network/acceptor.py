"""Accepts connections: not more often than is fair to other guests, and also when descriptors run out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from atoll.network.pace import Pace

# Between two turns of the event loop, in which everybody else gets one.
_ACCEPTS = 8
_PAUSE_S = 0.25
_SHORTEST_PAUSE_S = 0.02


class Acceptor:
    """Hands over each connection that comes to a listener.

    Args:
        listener: Non-blocking; it belongs to the acceptor from now on.
        take: Called with the connection, non-blocking, and the address it came from.
        pace: How often; meanwhile connections wait in the kernel's queue, and what finds it full asks again later.
    """

    def __init__(
        self, listener: socket.socket, take: Callable[[socket.socket, tuple[str, int]], None], pace: Pace
    ) -> None:
        self._listener = listener
        self._take = take
        self._pace = pace
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
                if (wait_s := self._pace.wait_s()) > 0:
                    # A few at once, rather than one turn of the event loop for each.
                    return self._pause(max(wait_s, _SHORTEST_PAUSE_S))
                connection, peer = self._listener.accept()
                self._pace.take()
                connection.setblocking(False)
                self._take(connection, peer)
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError:
            # Out of descriptors or memory: the connection stays in the queue, so look again a little later.
            self._pause(_PAUSE_S)
        return None

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._resumption = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._on_connection)
