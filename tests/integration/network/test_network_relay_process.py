"""The relay as a process: it dies, hangs, and obeys without its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator

import pytest
from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import (
    PUBLIC,
    Guest,
    NetworkTestbed,
    eventually,
    reset_comes,
    serving,
)
from tests.waiting import stop

from atoll.network import Links, cut_at
from atoll.network.relay_calls import RelayError
from atoll.types import Policy, Rule

GOOD = "good.example.com"
EVIL = "evil.example.net"


@contextlib.asynccontextmanager
async def one_guest(testbed: NetworkTestbed) -> AsyncIterator[tuple[Links, Guest, int]]:
    """A guest that may reach one name, and a server that has it."""
    async with (
        serving() as port,
        knowing({GOOD: PUBLIC, EVIL: PUBLIC}) as (_, nameserver),
        testbed.links(lambda: [nameserver]) as links,
    ):
        guest = Guest(await links.take())
        guest.link.set_policy(Policy(rules=(Rule(hosts=(GOOD,)),)))
        yield links, guest, port


async def echoed(connected: socket.socket) -> bool:
    connected.sendall(b"hello")
    return await asyncio.to_thread(connected.recv, 5) == b"hello"


async def replaced(links: Links, pid: int) -> None:
    await eventually(lambda: links.relay.pid not in (None, pid))
    await links.relay.start()


async def test_a_relay_that_is_killed_is_back_with_the_same_names_and_rules(testbed: NetworkTestbed) -> None:
    async with one_guest(testbed) as (links, guest, port):
        address = await address_of(guest, GOOD)
        pid = links.relay.pid
        assert pid is not None
        with await guest.connect(address, port) as connected:
            assert await echoed(connected)
            os.kill(pid, signal.SIGKILL)
            assert await reset_comes(connected)
        # Nobody has the names of the guest now but their file.
        with await guest.connect(address, port) as again:
            assert await echoed(again)
        assert await guest.is_reset(PUBLIC, port)
        assert await guest.link.guest.names() == {address: GOOD}
        assert links.relay.pid != pid


async def test_nothing_passes_a_relay_that_starts_again_before_it_has_the_rules(
    testbed: NetworkTestbed,
) -> None:
    async with one_guest(testbed) as (links, guest, port):
        guest.link.set_policy("none")
        for _ in range(3):
            pid = links.relay.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert await guest.is_reset(PUBLIC, port)
            await replaced(links, pid)


async def test_a_guest_that_sleeps_while_its_relay_dies_is_told_when_it_wakes(
    testbed: NetworkTestbed,
) -> None:
    async with one_guest(testbed) as (links, guest, port):
        with await guest.connect(await address_of(guest, GOOD), port) as connected:
            assert await echoed(connected)
            flows = await guest.link.flows()
            guest.mute()
            guest.link.hold()
            pid = links.relay.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await replaced(links, pid)
            # Its connections ended with the relay, and it is told of those that its checkpoint has.
            assert await guest.link.flows() == []
            guest.unmute()
            guest.link.release()
            await guest.link.reset_connections(flows)
            assert await reset_comes(connected)


async def test_a_relay_that_hangs_is_replaced(
    testbed: NetworkTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.network.relay_calls.CALL_S", 0.5)
    async with one_guest(testbed) as (links, guest, port):
        address = await address_of(guest, GOOD)
        pid = links.relay.pid
        assert pid is not None
        stop(pid)
        guest.link.set_policy(Policy(rules=(Rule(hosts=(EVIL,)),)))
        await replaced(links, pid)
        assert await guest.is_reset(address, port)
        with await guest.connect(await address_of(guest, EVIL), port) as connected:
            assert await echoed(connected)


async def test_a_link_is_cut_by_who_is_not_its_supervisor(testbed: NetworkTestbed) -> None:
    async with one_guest(testbed) as (_, guest, port):
        address = await address_of(guest, GOOD)
        with await guest.connect(address, port) as connected:
            assert await echoed(connected)
            flows = guest.link.guest.flows()
            # In this thread, as if the supervisor did nothing meanwhile.
            cut_at(testbed.pins / "relay.sock", guest.link.link_id)
            assert await reset_comes(connected)
        assert await guest.is_reset(address, port)
        with pytest.raises(OSError, match="no link"):
            cut_at(testbed.pins / "relay.sock", "another")
        # A guest that slept is told again of what was cut, whoever has cut it.
        assert guest.link.guest.mend() == flows


async def test_a_link_that_the_relay_does_not_take_leaves_nothing(
    testbed: NetworkTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RelayError("too many open files")

    async with testbed.links() as links:
        await links.relay.start()
        with monkeypatch.context() as patch:
            patch.setattr(links.relay, "call", refuse)
            with pytest.raises(OSError, match="too many open files"):
                await links.take()
        assert not [path for path in testbed.pins.iterdir() if path.suffix == ".outer"]
        await links.take()
