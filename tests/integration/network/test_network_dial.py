from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from tests.integration.network.test_network_relay import full_listener
from tests.integration.network.testbed import Guest, NetworkTestbed, eventually, serving

from atoll.host import in_netns
from atoll.network import Link, netlink
from atoll.network.addresses import GUEST_ADDRESS, INTERFACE_INDEX
from atoll.network.netlink import ACK, Message, NetlinkSocket, attribute

pytestmark = pytest.mark.twice


async def test_a_dialled_port_of_the_guest_answers(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with guest.listen(5000) as listener, await guest.link.dial(5000, 90) as dialled:
            accepted, peer = listener.accept()
            with accepted:
                accepted.settimeout(90)
                assert peer[0] == "10.254.0.1"
                await asyncio.get_running_loop().sock_sendall(dialled, b"hello")
                assert await asyncio.to_thread(accepted.recv, 100) == b"hello"
                accepted.sendall(b"you")
                assert await asyncio.get_running_loop().sock_recv(dialled, 100) == b"you"


async def test_a_port_where_nobody_listens_refuses(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with pytest.raises(ConnectionRefusedError):
            await guest.link.dial(5001, 90)


async def test_a_guest_that_is_not_there_is_a_timeout(testbed: NetworkTestbed) -> None:
    async with testbed.links() as links:
        link = await links.take()
        with pytest.raises(TimeoutError):
            await link.dial(5000, 0.2)


async def test_a_cancelled_dial_leaves_nothing_open(testbed: NetworkTestbed) -> None:
    async with testbed.links() as links:
        link = await links.take()
        dialling = asyncio.create_task(link.dial(5000, 90))
        await asyncio.sleep(0)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling


async def test_many_dials_at_once_all_arrive(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with guest.listen(5000):
            dialled = await asyncio.gather(*(guest.link.dial(5000, 90) for _ in range(50)))
            assert len({end.getsockname() for end in dialled}) == 50
            for end in dialled:
                end.close()


@pytest.mark.parametrize("count", [2, 20])
async def test_dialled_connections_are_ended_and_no_others(testbed: NetworkTestbed, count: int) -> None:
    async with serving() as port, testbed.guest() as guest:
        with guest.listen(5000), await guest.connect(testbed.public, port) as other:
            (await guest.link.dial(5000, 90)).close()
            dialled = [await guest.link.dial(5000, 90) for _ in range(count)]
            guest.link.end_dialled()
            for end in dialled:
                with end, pytest.raises(ConnectionAbortedError):
                    end.recv(1)
            with await guest.link.dial(5000, 90) as later:
                guest.link.end_dialled()
                with pytest.raises(ConnectionAbortedError):
                    later.recv(1)
            other.sendall(b"x")
            assert await asyncio.to_thread(other.recv, 1) == b"x"


async def test_a_new_supervisor_ends_what_the_one_before_has_dialled(testbed: NetworkTestbed) -> None:
    first = testbed.links_of()
    link = await first.take()
    with Guest(link).listen(5000), await link.dial(5000, 90) as dialled:
        await first.aclose()
        async with testbed.links() as second:
            adopted = await second.adopt(link.link_id)
            assert adopted is not None
            adopted.end_dialled()
            with pytest.raises(ConnectionAbortedError):
                dialled.recv(1)


async def all_of(connection: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(await asyncio.get_running_loop().sock_recv(connection, size))


async def test_traffic_counts_what_passed_the_cable(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with guest.listen(5000) as listener, await guest.link.dial(5000, 90) as dialled:
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(90)
                received, sent = guest.link.traffic()
                await asyncio.get_running_loop().sock_sendall(dialled, b"x" * 30_000)
                await asyncio.to_thread(accepted.recv, 30_000, socket.MSG_WAITALL)
                received_after, sent_after = guest.link.traffic()
                data, payload = guest.link.received_payload_bytes(), guest.link.payload_bytes()
                await asyncio.to_thread(accepted.sendall, b"y" * 30_000)
                await all_of(dialled, 30_000)
                assert guest.link.payload_bytes() - payload >= 30_000
                assert guest.link.received_payload_bytes() - data <= 0, "acknowledgements are no data"
        assert received_after - received >= 30_000
        assert sent_after - sent < 30_000


async def test_a_prepared_link_has_its_address_again(testbed: NetworkTestbed) -> None:
    def take_address_away() -> None:
        body = struct.pack("=BBBBI", socket.AF_INET, 30, 0, 0, INTERFACE_INDEX)
        with NetlinkSocket(netlink.ROUTE) as kernel:
            kernel.change([Message(21, ACK, body + attribute(2, socket.inet_aton(GUEST_ADDRESS)))])

    async with testbed.guest() as guest:
        in_netns(guest.link.netns, take_address_away)
        with guest.listen(5000):
            with pytest.raises(TimeoutError):
                await guest.link.dial(5000, 0.2)
            await guest.link.prepare()
            (await guest.link.dial(5000, 90)).close()


async def test_a_question_without_an_answer_is_seen_in_both_directions(testbed: NetworkTestbed) -> None:
    loop = asyncio.get_running_loop()

    async def asks(link: Link, expected: bool) -> None:
        while (link.unanswered_s() is not None) != expected:  # noqa: ASYNC110 - the kernel has no event
            await asyncio.sleep(0.01)

    async with testbed.guest() as guest:
        with guest.listen(5000) as listener, await guest.link.dial(5000, 90) as dialled:
            accepted, _ = listener.accept()
            with accepted:
                assert guest.link.unanswered_s() is None
                await loop.sock_sendall(dialled, b"question")
                await asks(guest.link, True)
                await asyncio.sleep(0.05)
                await asyncio.to_thread(accepted.sendall, b"answer")
                await asks(guest.link, False)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        asked.set()
        await answer.wait()
        writer.write(b"answer")
        await writer.drain()
        await reader.read()

    async with testbed.guest() as guest, serving(slow) as port:
        with await guest.connect(testbed.public, port) as connected:
            await asyncio.sleep(0.05)
            await asyncio.to_thread(connected.sendall, b"question")
            await asked.wait()
            await asks(guest.link, True)
            # The kernel may learn a moment later that the server has it.
            await eventually(lambda: guest.link.unanswered_s(by_guest=False) is None)
            await asyncio.sleep(0.05)
            answer.set()
            assert await asyncio.to_thread(connected.recv, 100) == b"answer"
            await asks(guest.link, False)
        with full_listener() as full, await guest.connect(testbed.public, full.getsockname()[1]) as connected:
            await asyncio.to_thread(connected.sendall, b"question")
            await asks(guest.link, True)
            assert guest.link.unanswered_s(by_guest=False) is not None  # it has not got out
