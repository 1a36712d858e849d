from __future__ import annotations

import asyncio
import contextlib
import socket

from atoll.network.acceptor import Acceptor
from atoll.network.pace import Pace

_BURST = 20
_MORE = 30


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_burst_is_free_and_what_follows_waits_its_turn() -> None:
    clock = _Clock()
    pace = Pace(per_s=10, burst=3, clock=clock)
    for _ in range(3):
        assert pace.wait_s() == 0
        pace.take()
    assert abs(pace.wait_s() - 0.1) < 1e-6
    clock.now_s += 0.11
    assert pace.wait_s() == 0


def test_a_rest_gives_no_more_than_one_burst_back() -> None:
    clock = _Clock()
    pace = Pace(per_s=10, burst=3, clock=clock)
    clock.now_s += 1000
    for _ in range(3):
        assert pace.wait_s() == 0
        pace.take()
    assert pace.wait_s() > 0


def test_connections_beyond_the_burst_wait_in_the_queue_and_all_come_in_the_end() -> None:
    asyncio.run(_connect_too_often())


async def _connect_too_often() -> None:
    clock = _Clock()
    taken: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BURST + _MORE)
        listener.setblocking(False)
        for _ in range(_BURST + _MORE):
            opened.enter_context(socket.create_connection(listener.getsockname()))
        acceptor = Acceptor(
            listener, lambda connection, _: taken.append(connection), Pace(1000, _BURST, clock)
        )
        try:
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(taken) == _BURST
            async with asyncio.timeout(60):
                while len(taken) < _BURST + _MORE:
                    clock.now_s += 0.1
                    await asyncio.sleep(0.001)
        finally:
            acceptor.close()
            for connection in taken:
                connection.close()
