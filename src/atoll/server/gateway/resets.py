"""Ends HTTP/1.1 connections with a reset, so that no client takes the end for a broken answer.

Older clients of E2B have no other sign that a sandbox was killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator

from atoll.host import disconnect

Peer = tuple[str, int]
# A sandbox that is killed may end many streams at once.
_FRESH_S = 0.05


class Resets:
    """Finds the sockets of clients, which the HTTP server does not show."""

    def __init__(self) -> None:
        self._descriptors: dict[Peer, int] = {}
        self._listed_at = float("-inf")

    def reset(self, peer: Peer) -> None:
        """End the connection to a client. If the client is gone, do nothing."""
        if time.monotonic() - self._listed_at > _FRESH_S:
            self._descriptors = _connections()
            self._listed_at = time.monotonic()
        descriptor = self._descriptors.get(peer)
        if descriptor is None:
            return
        with contextlib.suppress(OSError), _socket(descriptor) as sock:
            # the descriptor may be another connection's by now
            if sock.getpeername()[:2] == peer:
                disconnect(sock.fileno())


def _connections() -> dict[Peer, int]:
    """Return the descriptors of this process's connections, by their peers."""
    found: dict[Peer, int] = {}
    for text in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _socket(int(text)) as sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                found[sock.getpeername()[:2]] = int(text)
    return found


@contextlib.contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket]:
    """Give a second handle on a socket, so that the HTTP server's own is not affected.

    Raises:
        OSError: The descriptor is no socket, or is closed.
    """
    own = os.dup(descriptor)
    try:
        sock = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    with sock:
        yield sock
