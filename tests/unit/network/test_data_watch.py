"""What wakes a guest that sleeps: data on its held connections, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from atoll.network import data_watch
from atoll.network.connection import Connection
from atoll.network.data_watch import DataWatch, is_farewell
from atoll.network.egress import Destination
from atoll.network.flows import Flow
from atoll.network.room import Room
from atoll.network.splice import Splice, tune

pytestmark = pytest.mark.anyio
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
ALERT = bytes.fromhex("15030300020100")
HIDDEN_ALERT = bytes.fromhex("1703030013") + bytes(19)


@dataclass
class Held:
    """Connections that are held: the guest's ends, and the servers'."""

    guests: list[socket.socket] = field(default_factory=list)
    servers: list[socket.socket] = field(default_factory=list)
    splices: dict[Splice, Connection] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    allowed: bool = True

    def __post_init__(self) -> None:
        self.watch = DataWatch(self.splices, lambda _: self.allowed)

    def open(self) -> Splice:
        guest, near = joined()
        remote, server = joined()
        self.guests.append(guest)
        self.servers.append(server)
        for end in (near, remote):
            tune(end)
        splice = Splice(near, remote, Room(), lambda: self.watch.forget(splice))
        destination = Destination(None, "192.0.2.1", len(self.servers))
        self.splices[splice] = Connection("c", Flow(1, "192.0.2.1", 1), destination, "192.0.2.1")
        return splice

    def begin(self) -> None:
        self.watch.hold()
        self.watch.begin(self.told.append)

    async def until_over(self) -> None:
        """Wait until nothing is watched any more."""
        await until(lambda: not self.watch.is_on)


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not so():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


def joined() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


@asynccontextmanager
async def held(count: int = 1) -> AsyncIterator[Held]:
    made = Held()
    for _ in range(count):
        made.open()
    try:
        yield made
    finally:
        made.watch.release()
        for splice in list(made.splices):
            splice.reset()
        for end in (*made.guests, *made.servers):
            end.close()


async def test_the_first_data_of_several_connections_is_told_once() -> None:
    async with held(5) as made:
        made.begin()
        assert made.watch.is_on
        made.servers[3].sendall(b"hello")
        await made.until_over()
        made.servers[1].sendall(b"hello")
        await asyncio.sleep(0.05)
        assert made.told == ["192.0.2.1:4"]
        made.watch.begin(made.told.append)  # what has come stays
        assert len(made.told) == 2


async def test_what_came_before_the_watch_began_is_told_and_nothing_is_lost() -> None:
    async with held() as made:
        made.servers[0].sendall(b"hello")
        await until(lambda: next(iter(made.splices)).peek(9) == b"hello")
        made.begin()
        assert made.told == ["192.0.2.1:1"]
        made.watch.release()
        next(iter(made.splices)).start()
        assert await asyncio.to_thread(made.guests[0].recv, 9) == b"hello"


async def test_what_the_guest_has_not_got_is_told() -> None:
    async with held() as made:
        splice = next(iter(made.splices))
        made.guests[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        splice.start()
        await asyncio.to_thread(made.servers[0].sendall, bytes(3 << 20))
        await until(lambda: splice.owes_guest() and not splice.peek(1))
        splice.hold()
        made.begin()
        assert made.told == ["192.0.2.1:1"]


async def test_what_the_guest_said_last_gets_out_in_order_and_an_end_waits() -> None:
    async with held() as made:
        splice = next(iter(made.splices))
        said = bytes(range(256)) * 4096
        sending = asyncio.create_task(asyncio.to_thread(made.guests[0].sendall, said))
        made.begin()
        got = b""
        while len(got) < len(said):
            splice.owes_remote()
            made.servers[0].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                got += made.servers[0].recv(1 << 20)
            await asyncio.sleep(0.001)
        await sending
        assert got == said
        made.guests[0].shutdown(socket.SHUT_WR)
        assert not splice.owes_remote()
        made.watch.release()
        splice.start()
        made.servers[0].setblocking(True)
        assert await asyncio.to_thread(made.servers[0].recv, 1) == b""


@pytest.mark.parametrize("end", ["close", "half-close", "reset"])
async def test_an_end_without_data_is_told_to_nobody_and_reaches_the_guest(end: str) -> None:
    async with held() as made:
        made.begin()
        server = made.servers[0]
        if end == "half-close":
            server.shutdown(socket.SHUT_WR)
        else:
            if end == "reset":
                server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            server.close()
        await made.until_over()
        made.watch.begin(made.told.append)
        assert not made.watch.is_on
        assert made.told == []
        made.watch.release()
        next(iter(made.splices)).start()
        if end == "reset":
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(made.guests[0].recv, 1)
        else:
            assert await asyncio.to_thread(made.guests[0].recv, 1) == b""


async def test_data_before_an_end_is_told() -> None:
    async with held() as made:
        made.begin()
        made.servers[0].sendall(b"bye")
        made.servers[0].close()
        await made.until_over()
        assert made.told == ["192.0.2.1:1"]


@pytest.mark.parametrize("farewell", [ALERT, HIDDEN_ALERT], ids=["TLS 1.2", "TLS 1.3"])
async def test_an_end_that_tls_announces_is_told_to_nobody(farewell: bytes) -> None:
    async with held(2) as made:
        made.servers[0].sendall(farewell)
        made.servers[0].close()
        await until(lambda: next(iter(made.splices)).remote_has_ended)
        made.begin()
        made.servers[1].sendall(farewell)
        await asyncio.sleep(0.05)
        made.servers[1].close()
        await made.until_over()
        assert made.told == []


async def test_two_bytes_of_content_in_tls_are_told_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_watch, "_END_S", 0.05)
    async with held() as made:
        made.begin()
        made.servers[0].sendall(HIDDEN_ALERT)
        await made.until_over()
        assert made.told == ["192.0.2.1:1"]
        made.watch.begin(made.told.append)
        made.servers[0].sendall(HIDDEN_ALERT)  # twice is no farewell
        await until(lambda: len(made.told) == 2)


async def test_keepalives_are_no_data() -> None:
    async with held() as made:
        server = made.servers[0]
        server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        made.begin()
        await asyncio.sleep(2.5)
        assert made.watch.is_on
        assert made.told == []


async def test_urgent_data_does_not_keep_the_loop_busy() -> None:
    async with held() as made:
        made.begin()
        made.servers[0].send(b"!", socket.MSG_OOB)
        made.servers[0].send(b"more")
        await made.until_over()
        assert made.told == ["192.0.2.1:1"]


async def test_what_the_policy_does_not_allow_any_more_is_told_to_nobody() -> None:
    async with held() as made:
        made.begin()
        made.allowed = False
        made.servers[0].sendall(b"hello")
        await made.until_over()
        assert made.told == []


async def test_only_what_is_held_is_watched_and_a_connection_that_comes_late_too() -> None:
    async with held() as made:
        made.watch.begin(made.told.append)
        assert not made.watch.is_on
        made.begin()
        late = made.open()
        made.watch.add(late)
        next(iter(made.splices)).reset()
        assert made.watch.is_on
        made.servers[1].sendall(b"hello")
        await made.until_over()
        assert made.told == ["192.0.2.1:2"]


async def test_only_a_lone_announcement_is_a_farewell() -> None:
    major = b"\x03\x03"
    assert is_farewell(ALERT)
    assert is_farewell(HIDDEN_ALERT)
    assert is_farewell(b"\x15" + major + b"\x00\x1a" + bytes(26))
    for other in (
        b"",
        b"\x15\x03",
        ALERT + b"x",
        ALERT + ALERT,
        HIDDEN_ALERT[:-1],
        b"\x17" + major + b"\x00\x14" + bytes(20),
        b"\x16" + major + b"\x00\x02" + bytes(2),
        b"\x15\x02\x00\x00\x02\x01\x00",
        b"\x15" + major + b"\x01\x00" + bytes(256),
    ):
        assert not is_farewell(other)
