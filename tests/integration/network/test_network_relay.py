from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.network.testbed import MIB, Guest, NetworkTestbed, reset_comes, serving

# See relay/guest/guest.go.
ASK_FROM = 128


def receive_all(connected: socket.socket) -> bytes:
    return b"".join(iter(lambda: connected.recv(MIB), b""))


async def test_a_guest_talks_to_a_public_server(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"hello")
            assert await asyncio.to_thread(connected.recv, 100) == b"hello"


async def test_a_guest_that_has_finished_sending_still_receives(testbed: NetworkTestbed) -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read()
        writer.write(b"%d" % len(received))
        await writer.drain()

    async with serving(count) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"x" * 1000)
            connected.shutdown(socket.SHUT_WR)
            assert await asyncio.to_thread(receive_all, connected) == b"1000"


async def test_a_server_that_has_finished_sending_still_receives(testbed: NetworkTestbed) -> None:
    received = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"that is all")
        writer.write_eof()
        received.set_result(await reader.read())

    async with serving(greet) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            assert await asyncio.to_thread(receive_all, connected) == b"that is all"
            connected.sendall(b"thanks")
            connected.shutdown(socket.SHUT_WR)
            assert await received == b"thanks"


async def test_64_mib_come_back_as_they_went(testbed: NetworkTestbed) -> None:
    block = hashlib.sha512(b"atoll").digest() * (MIB // 64)

    def send(connected: socket.socket) -> None:
        for number in range(64):
            connected.sendall(struct.pack(">I", number) + block[4:])
        connected.shutdown(socket.SHUT_WR)

    def receive(connected: socket.socket) -> str:
        digest = hashlib.sha256()
        while data := connected.recv(MIB):
            digest.update(data)
        return digest.hexdigest()

    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            sending = asyncio.create_task(asyncio.to_thread(send, connected))
            received = await asyncio.to_thread(receive, connected)
            await sending
    expected = hashlib.sha256()
    for number in range(64):
        expected.update(struct.pack(">I", number) + block[4:])
    assert received == expected.hexdigest()


async def test_a_server_in_a_refused_range_is_never_reached(testbed: NetworkTestbed) -> None:
    reached = []

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer.get_extra_info("sockname"))

    async with serving(note) as port, testbed.guest() as guest:
        for address in testbed.private:
            assert await guest.is_reset(address, port), address
    assert reached == []


async def test_the_gateway_offers_nothing_but_names(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        for number in (port, 22, 15001):
            assert await guest.is_reset("10.254.0.1", number), number


async def test_a_closed_port_is_a_reset(testbed: NetworkTestbed) -> None:
    with socket.create_server(("0.0.0.0", 0)) as closed:
        port = closed.getsockname()[1]
    async with testbed.guest() as guest:
        assert await guest.is_reset(testbed.public, port)


async def test_a_reset_of_the_server_reaches_the_guest(testbed: NetworkTestbed) -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        end = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serving(slam) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"x" * 100)
            assert await reset_comes(connected)


async def test_without_a_network_old_and_new_connections_are_reset(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"x")
            assert await asyncio.to_thread(connected.recv, 1) == b"x"
            guest.link.set_policy("none")
            assert await reset_comes(connected)
        assert await guest.is_reset(testbed.public, port)
        guest.link.set_policy("internet")
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"y")
            assert await asyncio.to_thread(connected.recv, 1) == b"y"


async def test_datagrams_and_pings_go_nowhere(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening,
            guest.socket(kind=socket.SOCK_DGRAM) as datagrams,
            guest.socket(kind=socket.SOCK_RAW, proto=socket.IPPROTO_ICMP) as pings,
            await guest.connect(testbed.public, port) as connected,
        ):
            listening.bind(("0.0.0.0", 0))
            echo_request = struct.pack(">BBHHH", 8, 0, 0xF7FF, 0, 0)
            for address in (testbed.public, "10.254.0.1", "203.0.113.1"):
                datagrams.sendto(b"out", (address, listening.getsockname()[1]))
                pings.sendto(echo_request, (address, 0))
            # What comes after them on the same cable has arrived, so they would have as well.
            connected.sendall(b"x")
            assert await asyncio.to_thread(connected.recv, 1) == b"x"
            for silent in (listening, datagrams, pings):
                silent.setblocking(False)
                assert nothing_comes(silent)


async def test_two_guests_with_one_address_do_not_meet(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.links() as links:
        guests = [Guest(await links.take()) for _ in range(2)]
        connections = [await guest.connect(testbed.public, port) for guest in guests]
        for number, connected in enumerate(connections):
            connected.sendall(b"%d" % number * 5000)
        for number, connected in enumerate(connections):
            with connected:
                connected.shutdown(socket.SHUT_WR)
                assert await asyncio.to_thread(receive_all, connected) == b"%d" % number * 5000


async def test_held_bytes_wait_and_then_arrive(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"before")
            assert await asyncio.to_thread(connected.recv, 100) == b"before"
            guest.link.hold()
            connected.sendall(b"after")
            connected.setblocking(False)
            await asyncio.sleep(0.05)
            assert nothing_comes(connected)
            connected.settimeout(90)
            guest.link.release()
            assert await asyncio.to_thread(connected.recv, 100) == b"after"


async def test_connections_that_only_the_server_keeps_make_room(testbed: NetworkTestbed) -> None:
    async def keep(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(keep) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as half_closed:
            half_closed.shutdown(socket.SHUT_WR)
            for _ in range(ASK_FROM - 1):
                with await guest.connect(testbed.public, port) as closed:
                    closed.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
            await connections_are(guest, ASK_FROM)
            await asyncio.sleep(3)  # until they are forgotten, which takes a minute in real life
            with await guest.connect(testbed.public, port):
                await connections_are(guest, 2)
                half_closed.setblocking(False)
                assert nothing_comes(half_closed)


async def test_what_cannot_be_reached_is_told_to_a_guest_that_slept_meanwhile(
    testbed: NetworkTestbed,
) -> None:
    async with testbed.guest() as guest:
        with full_listener() as full, await guest.connect(testbed.public, full.getsockname()[1]) as connected:
            await connections_are(guest, 1)
            guest.mute()
            guest.link.hold()
            full.close()
            await connections_are(guest, 0)
            guest.unmute()
            connected.settimeout(60)
            guest.link.release()
            assert await reset_comes(connected)


async def test_a_guest_that_loses_its_network_while_it_sleeps_is_told_when_it_wakes(
    testbed: NetworkTestbed,
) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"x")
            assert await asyncio.to_thread(connected.recv, 1) == b"x"
            guest.mute()
            guest.link.hold()
            guest.link.set_policy("none")
            await asyncio.sleep(0.1)
            guest.unmute()
            connected.settimeout(60)
            guest.link.release()
            assert await reset_comes(connected)


async def test_a_link_that_ends_keeps_nothing_for_a_sleeping_guest(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with full_listener() as full, await guest.connect(testbed.public, full.getsockname()[1]) as connected:
            await connections_are(guest, 1)
            guest.link.hold()
            await guest.link.leave()
            connected.settimeout(60)
            assert await reset_comes(connected)


async def test_a_connection_outlives_a_silent_guest(testbed: NetworkTestbed) -> None:
    asked = asyncio.Event()

    async def answer_later(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        writer.write(b"good morning")
        await writer.drain()

    async with serving(answer_later) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            guest.mute()
            asked.set()
            await asyncio.sleep(0.3)
            guest.unmute()
            assert await asyncio.to_thread(receive_all, connected) == b"good morning"


@contextmanager
def full_listener() -> Iterator[socket.socket]:
    """A listener that answers nobody any more, until it is closed."""
    with socket.create_server(("0.0.0.0", 0), backlog=0) as listener, socket.socket() as first:
        first.connect(listener.getsockname())
        yield listener


async def connections_are(guest: Guest, count: int) -> None:
    for _ in range(2000):
        if len(await guest.link.flows()) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"there are never {count}, but {len(await guest.link.flows())}")


def nothing_comes(silent: socket.socket) -> bool:
    try:
        silent.recv(1)
    except BlockingIOError:
        return True
    return False
