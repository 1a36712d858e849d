from __future__ import annotations

import contextlib
import socket
import threading

import anyio

from atoll.guest import health
from atoll.sdk._async.http import AsyncConnection
from atoll.sdk._deadline import Deadline
from atoll.sdk._io_async import Stream


def _flood(far: socket.socket) -> None:
    with far, contextlib.suppress(OSError):  # the client hung up
        while True:
            far.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)


async def _cancelled(near: socket.socket) -> bool:
    connection = AsyncConnection(Stream(near))
    deadline = Deadline(60.0)
    await connection.send(health(), None, None, deadline)
    try:
        with anyio.move_on_after(0.2) as scope:
            await connection.head(deadline)
    finally:
        connection.close()
    return scope.cancelled_caught


def test_a_guest_that_never_stops_sending_does_not_outlast_a_cancellation() -> None:
    near, far = socket.socketpair()
    thread = threading.Thread(target=_flood, args=(far,))
    thread.start()
    try:
        assert anyio.run(_cancelled, near)
    finally:
        near.close()
        thread.join(60)
    assert not thread.is_alive()
