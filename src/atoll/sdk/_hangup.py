"""Whether a connection has ended, while bytes of it may still be unread."""

from __future__ import annotations

import select
import socket

from atoll.sdk._bytes import CHUNK_BYTES

# Where a poll that asks for nothing tells of an end. On macOS it tells nothing, and Windows has none.
TELLS = hasattr(select, "epoll")
# What a socket and the bridge can hold is less. A peer that goes on has not ended.
_MOST_BYTES = 32 << 20
_QUIET = getattr(socket, "MSG_NOSIGNAL", 0)


def hangs_up(sock: socket.socket) -> bool:
    """Tell whether both directions have ended. Only where ``TELLS``."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))


def rest(sock: socket.socket) -> tuple[bytes, bool]:
    """Return the bytes that are there, and whether the peer has ended after them. Waits for nothing."""
    pieces = bytearray()
    try:
        while len(pieces) < _MOST_BYTES and select.select([sock], [], [], 0)[0]:
            data = sock.recv(CHUNK_BYTES)
            if not data:
                return bytes(pieces), True
            pieces += data
    except BlockingIOError:
        return bytes(pieces), False
    except OSError:
        return bytes(pieces), True
    return bytes(pieces), False


def is_closed(sock: socket.socket) -> bool:
    """Tell whether the other end of a socket pair is closed, and not only its direction to this end.

    Where a pair is one of TCP, as on Windows, this is known only after bytes were sent there.
    """
    try:
        sock.send(b"", _QUIET)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False
