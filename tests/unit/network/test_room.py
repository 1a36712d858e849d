from __future__ import annotations

import asyncio
import socket

from atoll.network.pump import Pump
from atoll.network.room import LEAST_BYTES, SHARED_BYTES, Room

PUMPS = 60


def test_a_connection_may_hold_a_little_even_when_others_hold_all() -> None:
    room = Room(shared_bytes=10_000)
    assert room.piece(1 << 18) == 10_000
    room.take(10_000)
    assert room.piece(1 << 18) == LEAST_BYTES
    room.give(10_000)
    assert room.piece(100) == 100


def test_connections_that_stall_hold_no_more_than_their_share_and_give_it_back() -> None:
    async def test() -> None:
        room = Room(shared_bytes=1 << 20)
        pairs = [(*socket.socketpair(), *socket.socketpair()) for _ in range(PUMPS)]
        pumps = []
        for source, feed, target, sink in pairs:
            for end in (source, feed, target, sink):
                end.setblocking(False)
            _fill(target)
            feed.send(bytes(1 << 17))
            pumps.append(Pump(source, target, room, lambda _: None))
            pumps[-1].start()
        for _ in range(20):
            await asyncio.sleep(0)
        held = sum(len(pump._rest) for pump in pumps)
        assert 1 << 19 < held <= (1 << 20) + PUMPS * LEAST_BYTES
        assert room.piece(SHARED_BYTES) == LEAST_BYTES
        for pump in pumps:
            pump._end(None)
        assert room.piece(SHARED_BYTES) == 1 << 20
        for pair in pairs:
            for end in pair:
                end.close()

    asyncio.run(test())


def _fill(target: socket.socket) -> None:
    try:
        while True:
            target.send(bytes(1 << 16))
    except BlockingIOError:
        return
