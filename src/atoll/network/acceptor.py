"""Accepts connections at a rate that is fair to other guests, and copes with a lack of descriptors."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

from atoll.network.pace import Pace

# This many between two turns of the event loop, in which all other tasks run.
_ACCEPTS = 8
_PAUSE_S = 0.25
_SHORTEST_PAUSE_S = 0.02


class Acceptor:
    """Passes on each connection that comes to a listener.

    Args:
        listener: Non-blocking; the acceptor owns it from now on.
        take: Called with the non-blocking connection and the address it came from.
        pace: The allowed rate. Connections beyond it wait in the kernel's queue; when it is full, clients try
            again later.
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

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits in the kernel's queue."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Stop accepting and close the listener."""
        if self._resumption:
            self._resumption.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _on_connection(self) -> None:
        try:
            for _ in range(_ACCEPTS):
                if (wait_s := self._pace.wait_s()) > 0:
                    # Accept a few at once, and not one per turn of the event loop.
                    return self._pause(max(wait_s, _SHORTEST_PAUSE_S))
                connection, peer = self._listener.accept()
                self._pace.take()
                connection.setblocking(False)
                self._take(connection, peer)
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError:
            # Descriptors or memory are short. The connection stays in the queue, so try again a little later.
            self._pause(_PAUSE_S)
        return None

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._resumption = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._on_connection)
