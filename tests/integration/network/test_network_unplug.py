"""A link that is cut: nothing passes in either direction, open connections are over, and it outlives a process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.integration.network.nameserver import knowing
from tests.integration.network.testbed import PUBLIC, Guest, NetworkTestbed, eventually, serving

from atoll.host import in_netns
from atoll.network import cut, filters, pins_of
from atoll.types import EgressDecision, Policy, Rule


async def echoed(guest: Guest, port: int) -> bytes:
    with await guest.connect(PUBLIC, port) as connected:
        connected.sendall(b"hello")
        return await asyncio.to_thread(connected.recv, 5)


def silent(guest: Guest, port: int) -> bool:
    """Whether nothing at all answers an attempt to connect."""
    with guest.socket() as made:
        made.settimeout(1.2)
        try:
            made.connect((PUBLIC, port))
        except TimeoutError:
            return True
        return False


@contextlib.contextmanager
def flooding(guest: Guest, port: int) -> Iterator[None]:
    """Have threads of a guest send all the time, on one connection each and by new connections."""
    over = threading.Event()

    def one() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), guest.socket() as made:
                made.settimeout(0.2)
                made.connect((PUBLIC, port))
                while not over.is_set():
                    made.sendall(b"x" * 65536)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


async def test_an_open_connection_is_reset_at_both_ends(testbed: NetworkTestbed) -> None:
    ended = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
        ended.set()

    async with serving(handle) as port, testbed.guest() as guest:
        with await guest.connect(PUBLIC, port) as connected:
            assert await asyncio.to_thread(connected.recv, 5) == b"hello"
            guest.link.cut()
            await asyncio.wait_for(ended.wait(), 60)
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(connected.recv, 5)


async def test_no_byte_of_a_guest_that_floods_arrives_after_the_cut(testbed: NetworkTestbed) -> None:
    arrived = 0
    open_now = 0

    async def count(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal arrived, open_now
        open_now += 1
        try:
            while data := await reader.read(1 << 20):
                arrived += len(data)
        except ConnectionError:
            return
        finally:
            open_now -= 1

    async with serving(count) as port, testbed.guest() as guest:
        with flooding(guest, port):
            while arrived < 1 << 22:  # noqa: ASYNC110 - the count has no event
                await asyncio.sleep(0.01)
            guest.link.cut()
            # What had arrived in this process's own sockets before is read until their ends are seen.
            while open_now:  # noqa: ASYNC110 - nor have its ends
                await asyncio.sleep(0.01)
            before = arrived
            for _ in range(50):
                await asyncio.sleep(0.01)
            assert (arrived, open_now) == (before, 0)


async def test_a_dialled_connection_ends_and_none_can_be_made(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with guest.listen(5000) as listener, await guest.link.dial(5000, 90) as dialled:
            accepted, _ = listener.accept()
            with accepted:
                guest.link.cut()
                with pytest.raises(ConnectionAbortedError):
                    await asyncio.get_running_loop().sock_recv(dialled, 1)
                with pytest.raises(TimeoutError):
                    await guest.link.dial(5000, 0.3)


async def test_names_are_not_asked_any_more(testbed: NetworkTestbed) -> None:
    async with knowing({"a.example.com": PUBLIC}) as (server, address):
        async with testbed.guest(lambda: [address]) as guest:
            guest.link.cut()
            with guest.socket(kind=socket.SOCK_DGRAM) as asking:
                asking.connect(("10.254.0.1", 53))
                asking.settimeout(0.5)
                asking.send(
                    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x03com\x00\x00\x01\x00\x01"
                )
                with pytest.raises(TimeoutError):
                    await asyncio.to_thread(asking.recv, 100)
        assert server.asked == []


async def test_mended_it_goes_by_its_policy_and_old_connections_are_over(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(PUBLIC, port) as connected:
            connected.sendall(b"hello")
            assert await asyncio.to_thread(connected.recv, 5) == b"hello"
            guest.mute()  # as if it were frozen, it misses the reset
            guest.link.cut()
            guest.link.cut()
            guest.unmute()
            assert await asyncio.to_thread(silent, guest, port)
            await guest.link.mend()
            await guest.link.mend()
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(connected.recv, 5)
        assert await echoed(guest, port) == b"hello"
        guest.link.cut()
        guest.link.set_policy("none")
        await guest.link.mend()
        assert await guest.is_reset(PUBLIC, port)


async def test_a_policy_that_is_set_meanwhile_opens_nothing(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        guest.link.cut()
        guest.link.set_policy("internet")
        assert await asyncio.to_thread(silent, guest, port)


async def test_a_cut_outlives_the_process_and_the_next_one_finds_it(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.links() as links:
        link = await links.take()
        guest = Guest(link)
        link.cut()
        assert not link.was_cut
        await link.leave()
        again = testbed.links_of()
        try:
            adopted = await again.adopt(link.link_id)
            assert adopted is not None
            assert adopted.was_cut
            assert await asyncio.to_thread(silent, guest, port)
            await adopted.mend()
            assert await echoed(guest, port) == b"hello"
        finally:
            await again.aclose()
            again.sweep(keep=())


async def test_another_process_may_cut_it(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        assert await echoed(guest, port) == b"hello"
        pins = pins_of(testbed.pins, guest.link.link_id)
        await asyncio.to_thread(cut, pins)
        assert await asyncio.to_thread(silent, guest, port)
        assert in_netns(pins.outer, filters.is_cut)
        await guest.link.mend()
        assert await echoed(guest, port) == b"hello"


async def test_a_rule_by_address_unplugs_with_its_reason(testbed: NetworkTestbed) -> None:
    reasons: list[str] = []
    told: list[EgressDecision] = []
    rules = (Rule(name="a trap", action="unplug", addresses=("203.0.113.0/24",)), Rule())
    async with testbed.guest() as guest:
        guest.link.guest.follow(told.append, reasons.append)
        guest.link.set_policy(Policy(rules=rules))
        assert await guest.is_reset("203.0.113.9", 80)
        await eventually(lambda: told and reasons)
        assert [one.action for one in told] == ["unplug"]
    assert len(reasons) == 1
    assert "a trap" in reasons[0]
