from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from tests.integration.network.testbed import Guest, NetworkTestbed

QUESTION = b"\x07example\x03org\x00\x00\x01\x00\x01"
ANSWER = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x33\x64\x07"
NO_ERROR, SERVER_FAILED, NO_SUCH_NAME, MALFORMED = 0, 2, 3, 1


def query(number: int, question: bytes = QUESTION) -> bytes:
    return struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + question


def reply(asked: bytes, code: int = NO_ERROR) -> bytes:
    number = struct.unpack_from(">H", asked)[0]
    return struct.pack(">6H", number, 0x8180 | code, 1, 1, 0, 0) + asked[12:] + ANSWER


class Nameserver(asyncio.DatagramProtocol):
    """A nameserver of the host; ``answer`` gives the datagrams that it answers a question with."""

    def __init__(self, answer: Callable[[bytes], list[bytes]]) -> None:
        self.answer = answer
        self.asked: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.asked.append(data)
        for datagram in self.answer(data):
            self.transport.sendto(datagram, address)


@asynccontextmanager
async def nameserver(
    answer: Callable[[bytes], list[bytes]] = lambda asked: [reply(asked)],
) -> AsyncIterator[tuple[Nameserver, tuple[str, int]]]:
    """Serve names on a port of the testbed's loopback."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: Nameserver(answer), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server, transport.get_extra_info("sockname")
    finally:
        transport.close()
        await asyncio.sleep(0)


async def ask(guest: Guest, message: bytes, address: str = "10.254.0.1") -> bytes:
    with guest.socket(kind=socket.SOCK_DGRAM) as asking:
        asking.connect((address, 53))
        asking.send(message)
        return await asyncio.to_thread(asking.recv, 4096)


def code(answer: bytes) -> int:
    return answer[3] & 15


async def test_an_answer_passes_as_it_is_but_for_its_id(testbed: NetworkTestbed) -> None:
    async with nameserver() as (server, address), testbed.guest(lambda: [address]) as guest:
        assert await ask(guest, query(7)) == reply(query(7))
        assert server.asked[0][2:] == query(7)[2:]


async def test_a_question_to_any_nameserver_is_answered_by_the_hosts(testbed: NetworkTestbed) -> None:
    async with nameserver() as (_, address), testbed.guest(lambda: [address]) as guest:
        assert await ask(guest, query(8), "203.0.113.53") == reply(query(8))


async def test_the_host_asks_with_ids_that_the_guest_cannot_choose(testbed: NetworkTestbed) -> None:
    async with nameserver() as (server, address), testbed.guest(lambda: [address]) as guest:
        for _ in range(8):
            await ask(guest, query(9))
        assert {asked[:2] for asked in server.asked} != {query(9)[:2]}


async def test_an_answer_to_another_question_is_ignored(testbed: NetworkTestbed) -> None:
    def lie_first(asked: bytes) -> list[bytes]:
        other_id = bytes([asked[0] ^ 1]) + asked[1:]
        other_question = asked[:12] + QUESTION.replace(b"org", b"net")
        return [reply(other_id), reply(other_question), asked, b"", reply(asked)]

    async with nameserver(lie_first) as (_, address), testbed.guest(lambda: [address]) as guest:
        assert await ask(guest, query(10)) == reply(query(10))


async def test_the_next_nameserver_is_asked_when_one_cannot_tell(testbed: NetworkTestbed) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()
    async with (
        nameserver(lambda asked: [reply(asked, SERVER_FAILED)]) as (_, unwilling),
        nameserver() as (_, willing),
        testbed.guest(lambda: [nobody, unwilling, willing]) as guest,
    ):
        assert await ask(guest, query(11)) == reply(query(11))


async def test_without_any_nameserver_the_answer_says_so(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        answer = await ask(guest, query(12))
        assert answer[:2] == query(12)[:2]
        assert code(answer) == SERVER_FAILED


async def test_without_a_network_no_name_exists(testbed: NetworkTestbed) -> None:
    async with nameserver() as (server, address), testbed.guest(lambda: [address]) as guest:
        guest.link.set_policy("none")
        assert code(await ask(guest, query(13))) == NO_SUCH_NAME
        assert server.asked == []


async def test_rubbish_is_answered_by_the_forwarder_itself(testbed: NetworkTestbed) -> None:
    async with nameserver() as (server, address), testbed.guest(lambda: [address]) as guest:
        assert code(await ask(guest, query(14, b"\xff\xff"))) == MALFORMED
        assert server.asked == []


async def test_questions_by_tcp_are_answered_one_after_the_other(testbed: NetworkTestbed) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack(">H", await reader.readexactly(2))
        answer = reply(await reader.readexactly(length))
        writer.write(struct.pack(">H", len(answer)) + answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    async with server, testbed.guest(lambda: [address]) as guest:
        with await guest.connect("203.0.113.53", 53) as asking:
            for number in (15, 16):
                asking.sendall(struct.pack(">H", len(query(number))) + query(number))
                expected = reply(query(number))
                framed = await asyncio.to_thread(asking.recv, 2 + len(expected), socket.MSG_WAITALL)
                assert framed == struct.pack(">H", len(expected)) + expected


async def test_a_nameserver_that_the_guest_chooses_hears_nothing_whatever_it_is_sent(
    testbed: NetworkTestbed,
) -> None:
    """Port 53 of every address is the sandbox's own resolver, by UDP and by TCP; other datagrams vanish."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as chosen,
        socket.create_server((testbed.public, 53)) as chosen_tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as beside,
    ):
        chosen.bind((testbed.public, 53))
        beside.bind((testbed.public, 54))
        for silent in (chosen, chosen_tcp, beside):
            silent.setblocking(False)
        async with nameserver() as (server, address), testbed.guest(lambda: [address]) as guest:
            with guest.socket(kind=socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(query(17), (testbed.public, 54))
            assert await ask(guest, query(18), testbed.public) == reply(query(18))
            assert code(await ask(guest, query(19, b"no question"), testbed.public)) == MALFORMED
            with await guest.connect(testbed.public, 53) as asking:
                rubbish = query(20, b"\xff")
                asking.sendall(struct.pack(">H", len(rubbish)) + rubbish)
                assert code((await asyncio.to_thread(asking.recv, 4096))[2:]) == MALFORMED
            assert len(server.asked) == 1
        for silent in (chosen, beside):
            with pytest.raises(BlockingIOError):
                silent.recv(1)
        with pytest.raises(BlockingIOError):
            chosen_tcp.accept()
