from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest
from tests.integration.network.testbed import (
    PATIENCE_S,
    Guest,
    NetworkTestbed,
    eventually,
    reset_comes,
    serving,
)

from atoll.host import in_netns
from atoll.network import Flow, namespaces, veth
from atoll.network.addresses import GUEST_ADDRESS
from atoll.network.flows import challenge
from atoll.network.namespaces import Pins

pytestmark = pytest.mark.twice

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def pinned(testbed: NetworkTestbed) -> set[str]:
    return {path.name for path in testbed.pins.iterdir() if path.suffix in (".inner", ".outer")}


async def test_two_prestarted_machines_are_kept_and_go_in_the_end(testbed: NetworkTestbed) -> None:
    links = testbed.links_of()
    await links.start()
    link = await links.take()
    for _ in range(9000):
        if len(pinned(testbed)) == 6:
            break
        await asyncio.sleep(0.01)
    assert len(pinned(testbed)) == 6
    await link.aclose()
    await links.aclose()
    assert pinned(testbed) == set()


async def test_a_closed_link_leaves_no_pin(testbed: NetworkTestbed) -> None:
    async with testbed.links() as links:
        link = await links.take()
        assert {f"{link.link_id}.inner", f"{link.link_id}.outer"} <= pinned(testbed)
        await link.aclose()
        await link.aclose()
        assert not {f"{link.link_id}.inner", f"{link.link_id}.outer"} & pinned(testbed)


async def test_a_new_supervisor_adopts_a_link_that_works_on(testbed: NetworkTestbed) -> None:
    first = testbed.links_of()
    async with serving() as port:
        link = await first.take()
        guest = Guest(link)
        with guest.listen(5000), await guest.connect(testbed.public, port) as old:
            traffic = link.traffic()
            await first.aclose()
            assert await reset_comes(old)
            async with testbed.links() as second:
                adopted = await second.adopt(link.link_id)
                assert adopted is not None
                assert adopted.netns == link.netns
                assert adopted.traffic() >= traffic
                (await adopted.dial(5000, PATIENCE_S)).close()
                with await guest.connect(testbed.public, port) as new:
                    new.sendall(b"x")
                    assert await asyncio.to_thread(new.recv, 1) == b"x"


async def test_a_link_that_is_gone_is_not_adopted(testbed: NetworkTestbed) -> None:
    async with testbed.links() as links:
        assert await links.adopt("abc") is None
        (testbed.pins / "abc.inner").touch()
        (testbed.pins / "abc.outer").touch()
        assert await links.adopt("abc") is None


async def test_a_sweep_removes_what_nobody_keeps(testbed: NetworkTestbed) -> None:
    first = testbed.links_of()
    kept, lost = [(await first.take()).link_id for _ in range(2)]
    await first.aclose()
    async with testbed.links() as second:
        own = (await second.take()).link_id
        removed = second.sweep(keep=[kept])
        assert lost in removed
        assert not {kept, own} & set(removed)
        assert {f"{kept}.inner", f"{kept}.outer", f"{own}.inner", f"{own}.outer"} <= pinned(testbed)
        assert f"{lost}.inner" not in pinned(testbed)


async def test_reset_connections_resets_what_the_guest_has_open(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"x")
            await asyncio.to_thread(connected.recv, 1)
            await guest.link.reset_connections()
            assert await reset_comes(connected)


async def test_a_restored_guest_that_sends_on_a_lost_connection_gets_a_reset(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            await forget_unheard(guest)
            connected.sendall(b"are you there?")
            assert await reset_comes(connected)


async def test_a_restored_guest_that_only_waits_on_a_lost_connection_gets_a_reset(
    testbed: NetworkTestbed,
) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected:
            connected.sendall(b"x")
            await asyncio.to_thread(connected.recv, 1)
            flows = await guest.link.flows()
            assert flows == [Flow(connected.getsockname()[1], testbed.public, port)]
            await forget_unheard(guest)
            await guest.link.reset_connections(flows)
            assert await reset_comes(connected)


async def test_a_restored_guest_loses_dialled_connections_too(testbed: NetworkTestbed) -> None:
    async with testbed.guest() as guest:
        with guest.listen(5000) as listener:
            dialled = await guest.link.dial(5000, PATIENCE_S)
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(PATIENCE_S)
                flows = await guest.link.flows()
                assert flows == [Flow(5000, *dialled.getsockname())]
                guest.mute()
                dialled.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                dialled.close()
                guest.unmute()
                await guest.link.reset_connections(flows)
                assert await reset_comes(accepted)


async def test_challenges_leave_living_connections_alone(testbed: NetworkTestbed) -> None:
    async with serving() as port, testbed.guest() as guest:
        with await guest.connect(testbed.public, port) as connected, guest.listen(5000) as listener:
            with await guest.link.dial(5000, PATIENCE_S) as dialled:
                accepted, _ = listener.accept()
                with namespaces.challenger(
                    Pins(guest.link.netns, guest.link.netns.with_suffix(".outer"))
                ) as raw:
                    challenge(raw, await guest.link.flows())
                with accepted:
                    accepted.settimeout(PATIENCE_S)
                    connected.sendall(b"on")
                    assert await asyncio.to_thread(connected.recv, 2, socket.MSG_WAITALL) == b"on"
                    await asyncio.get_running_loop().sock_sendall(dialled, b"on")
                    assert await asyncio.to_thread(accepted.recv, 2, socket.MSG_WAITALL) == b"on"


async def forget_unheard(guest: Guest) -> None:
    """Lose the gateway's side of the guest's connections without the guest hearing of it."""
    await eventually(guest.link.guest.flows)  # the relay has accepted them
    guest.mute()
    await guest.link.reset_connections()
    guest.unmute()


async def test_an_uplink_has_what_the_guest_is_sent_and_the_host_has_no_address_there(
    testbed: NetworkTestbed,
) -> None:
    async with testbed.links() as links:
        link = await links.take()
        for _ in range(2):
            uplink = await link.open_uplink()
            with uplink.socket as opened:
                assert (uplink.mtu, uplink.gso_bytes) == (1500, 65536)
                assert in_netns(link.netns, _addresses) == ["127.0.0.1"]
                dialling = asyncio.ensure_future(link.dial(5000, PATIENCE_S))
                opened.settimeout(PATIENCE_S)
                frame = await asyncio.to_thread(_first_segment, opened)
                assert struct.unpack_from("!H", frame, 14 + 20 + 2) == (5000,)
                dialling.cancel()
                await asyncio.gather(dialling, return_exceptions=True)
            # Nobody may take it after all.
            await link.prepare()
            assert in_netns(link.netns, _addresses) == ["10.254.0.2", "127.0.0.1"]
        guest = Guest(link)
        with guest.listen(5000):
            (await link.dial(5000, PATIENCE_S)).close()


def _addresses() -> list[str]:
    found = []
    for line in Path("/proc/thread-self/net/fib_trie").read_text().split("Local:")[1].splitlines():
        if line.strip().startswith("|--"):
            address = line.split()[-1]
        elif "/32 host LOCAL" in line:
            found.append(address)
    return sorted(found)


def _first_segment(opened: socket.socket) -> bytes:
    """The first packet of TCP over IPv4 that comes, without the header before it."""
    while True:
        frame = opened.recv(70000)[10:]
        if frame[12:14] == b"\x08\x00" and frame[14 + 9] == socket.IPPROTO_TCP:
            return frame


async def test_a_new_link_loses_nothing_that_the_host_sends(testbed: NetworkTestbed) -> None:
    """An interface drops what it is given from its carrier on until the kernel has handled that."""
    testbed.pins.mkdir(exist_ok=True)
    pins, sent = namespaces.pins_of(testbed.pins, "new"), bytes(1000)
    for _ in range(100):
        outer = namespaces.make(pins)
        try:
            outer.dns.sendto(sent, (GUEST_ADDRESS, 9))
            assert veth.traffic(outer.counters)[0] >= len(sent)
        finally:
            outer.close()
            namespaces.remove(pins)
