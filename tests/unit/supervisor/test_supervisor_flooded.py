from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest

from atoll.errors import DeadlineError
from atoll.supervisor.machines.agent_client import Agents


class _Flood:
    """A guest whose answer is preceded by interim answers, without an end."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None

    async def dial(self, port: int, timeout_s: float) -> socket.socket:
        near, far = socket.socketpair()
        near.setblocking(False)
        self.thread = threading.Thread(target=self._send, args=(far,))
        self.thread.start()
        return near

    def _send(self, far: socket.socket) -> None:
        with far, contextlib.suppress(OSError):  # the supervisor hung up
            while True:
                far.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)


def test_a_guest_that_never_stops_sending_is_given_up_in_time() -> None:
    guest = _Flood()
    with pytest.raises(DeadlineError):
        asyncio.run(Agents(timeout_s=0.5).stats(guest))
    assert guest.thread is not None
    guest.thread.join(60)
    assert not guest.thread.is_alive()
