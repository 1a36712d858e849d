"""Sockets into a guest that clients hold."""

from __future__ import annotations

import contextlib
import socket

_PRUNE_AT = 64


class HandedOut:
    """Duplicates of the sockets that clients were given, so that they can be shut down from here.

    A paused guest's network stack still takes connections and data, so a client would wait for ever on one.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def keep(self, connection: socket.socket) -> None:
        """Remember a socket; the caller goes on owning its own descriptor of it."""
        if len(self._sockets) >= _PRUNE_AT:
            self._prune()
        self._sockets.append(connection.dup())

    def shut(self) -> None:
        """Shut all of them down: both ends see the end of the stream at once."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):  # the guest or the client has ended it already
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._sockets.clear()

    def _prune(self) -> None:
        alive = []
        for connection in self._sockets:
            if _connected(connection):
                alive.append(connection)
            else:
                connection.close()
        self._sockets = alive


def _connected(connection: socket.socket) -> bool:
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state[0] == 1  # TCP_ESTABLISHED
