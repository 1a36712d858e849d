"""What a link holds for a guest that sleeps, and when it may end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.integration.network.test_network_relay import connections_are
from tests.integration.network.testbed import MIB, Guest, NetworkTestbed, reset_comes, serving

from atoll.network import Links

# More than the guest takes at once, and less than its kernel takes for it.
MUCH_BYTES = 48 << 10
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


async def told(connected: socket.socket) -> None:
    """Have the server answer, so that it knows the connection."""
    connected.sendall(b"x")
    assert await asyncio.to_thread(connected.recv, 1) == b"x"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def no_link_is_being_made(links: Links) -> None:
    """Wait until the links that are kept ready are made."""
    async with asyncio.timeout(60):
        while links._filling:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


async def test_a_link_without_connections_holds_nothing_for_its_guest(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
        await connections_are(guest, 0)
        guest.link.hold()
        await until(lambda: guest.link.holds_nothing(()))


async def test_a_link_with_an_open_connection_keeps_it_and_less_descriptors(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.links() as links:
        guest = Guest(await links.take())
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
            flows = await guest.link.flows()
            guest.link.hold()
            await no_link_is_being_made(links)
            before = descriptors()
            assert not await guest.link.holds_nothing(flows)
            assert descriptors() < before
            guest.link.release()
            await told(connected)
            with guest.listen(5000) as listener:
                (await guest.link.dial(5000, 60)).close()
                listener.accept()[0].close()


async def test_a_connection_that_its_server_has_reset_holds_no_link(testbed: NetworkTestbed) -> None:
    end = asyncio.Event()

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        await writer.drain()
        await end.wait()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        writer.close()

    async with serving(reset) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
            flows = await guest.link.flows()
            guest.mute()
            guest.link.hold()
            assert not await guest.link.holds_nothing(flows)
            end.set()
            await until(lambda: guest.link.holds_nothing(flows))
            # On another link it would not be told of a connection that nobody has noted.
            assert not await guest.link.holds_nothing(())
            guest.unmute()
            guest.link.release()
            assert await reset_comes(connected)


async def test_what_a_server_has_sent_before_its_end_is_kept_for_the_guest(testbed: NetworkTestbed) -> None:
    end, ended = asyncio.Event(), asyncio.Event()

    async def part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        await writer.drain()
        await end.wait()
        writer.write(b"farewell")
        writer.close()
        ended.set()

    async with serving(part) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
            flows = await guest.link.flows()
            guest.link.hold()
            end.set()
            await ended.wait()
            assert not await guest.link.holds_nothing(flows)
            guest.link.release()
            assert await asyncio.to_thread(_received, connected) == b"farewell"


async def test_what_the_kernel_has_yet_to_deliver_keeps_the_link(testbed: NetworkTestbed) -> None:
    has_closed = asyncio.Event()

    async def much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(b"x" * MUCH_BYTES)
        writer.close()
        await writer.wait_closed()
        has_closed.set()

    async with serving(much) as port, testbed.guest() as guest:
        made = guest.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with made as connected:
            await asyncio.to_thread(connected.connect, (testbed.public, port))
            connected.shutdown(socket.SHUT_WR)
            await has_closed.wait()
            guest.mute()
            guest.link.hold()
            assert not await guest.link.holds_nothing(())
            # By itself, the kernel gives up a closed connection whose pauses are as long as they may be.
            await asyncio.sleep(3)
            assert not await guest.link.holds_nothing(())
            guest.unmute()
            guest.link.release()
            assert len(await asyncio.to_thread(_received, connected)) == MUCH_BYTES
            await until(lambda: guest.link.holds_nothing(()))


async def test_what_a_server_says_to_a_sleeping_guest_is_noticed_once_and_kept(
    testbed: NetworkTestbed,
) -> None:
    say, heard = asyncio.Event(), asyncio.Queue[str]()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        await say.wait()
        writer.write(b"hello")
        await reader.read()

    async with serving(speak) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
            guest.mute()
            guest.link.hold()
            assert not await guest.link.holds_nothing(())
            guest.link.guest.watch(heard.put_nowait)
            assert guest.link.guest.is_watched
            say.set()
            assert await heard.get() == f"{testbed.public}:{port}"
            assert not guest.link.guest.is_watched
            guest.unmute()
            guest.link.release()
            assert await asyncio.to_thread(connected.recv, 9) == b"hello"


async def test_what_had_not_reached_a_guest_when_it_fell_asleep_is_noticed(testbed: NetworkTestbed) -> None:
    say, said, heard = asyncio.Event(), asyncio.Event(), asyncio.Queue[str]()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        await say.wait()
        writer.write(b"hello")
        await writer.drain()
        said.set()
        await reader.read()

    async with serving(speak) as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
            guest.mute()
            say.set()
            await said.wait()
            await asyncio.sleep(0.1)  # the relay has passed it on
            guest.link.hold()
            guest.link.guest.watch(heard.put_nowait)
            assert await heard.get() == f"{testbed.public}:{port}"
            guest.unmute()
            guest.link.release()
            assert await asyncio.to_thread(connected.recv, 9) == b"hello"


async def test_what_a_guest_said_last_gets_out_and_the_answer_is_noticed(testbed: NetworkTestbed) -> None:
    heard = asyncio.Queue[str]()
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:

            async def is_fresh() -> bool:
                await told(connected)
                return guest.link.guest.is_fresh

            await until(is_fresh)  # for a moment, which may have passed
            await asyncio.sleep(0.2)
            assert not guest.link.guest.is_fresh
            guest.link.hold()
            connected.sendall(b"question")
            await asyncio.sleep(0.05)
            guest.mute()
            guest.link.guest.watch(heard.put_nowait)
            assert await heard.get() == f"{testbed.public}:{port}"
            guest.unmute()
            guest.link.release()
            assert await asyncio.to_thread(connected.recv, 9) == b"question"


async def test_a_cut_link_is_kept(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        guest.link.hold()
        guest.link.cut()
        assert not await guest.link.holds_nothing(())


async def test_a_connection_to_the_nameserver_keeps_the_link(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with await guest.connect("8.8.8.8", 53):
            guest.link.hold()
            assert not await guest.link.holds_nothing(())


def _received(connected: socket.socket) -> bytes:
    return b"".join(iter(lambda: connected.recv(MIB), b""))


async def test_a_new_link_is_as_the_one_before_to_its_guest(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.links() as links:
        first = await links.take()
        guest = Guest(first)
        with await guest.connect(testbed.public, port) as connected:
            await told(connected)
            flows = await first.flows()
        first.hold()
        await first.aclose()
        second = await links.take()
        second.set_policy("none")
        await second.reset_connections(flows)
        assert await Guest(second).is_reset(testbed.public, port)
