"""The relay outlives its supervisor, and the next one takes it over."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import (
    EVERYWHERE,
    PATIENCE_S,
    PUBLIC,
    Guest,
    NetworkTestbed,
    eventually,
    reset_comes,
    serving,
)

from atoll.host import LeftProgram, relay_path, start_ticks
from atoll.network import HostSettings, Links, Relay, RelayProgram
from atoll.types import EgressDecision, Policy, Rule

GOOD = "good.example.com"
EVIL = "evil.example.net"
ONLY_GOOD = Policy(rules=(Rule(hosts=(GOOD,)),))


class Record:
    """What a home knows of its relay, beyond the end of a supervisor."""

    def __init__(self, guardian: int) -> None:
        self.guardian = guardian
        self.known: tuple[int, int] | None = None

    def started(self, pid: int, started_ticks: int) -> None:
        self.known = (pid, started_ticks)

    def earlier(self) -> LeftProgram | None:
        try:
            return None if self.known is None else LeftProgram(*self.known)
        except ProcessLookupError:
            return None

    @property
    def pid(self) -> int:
        assert self.known is not None
        return self.known[0]

    @property
    def runs(self) -> bool:
        """Whether the relay runs. Of one that has ended, this process may be the parent."""
        try:
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False


class Home:
    """One home: supervisors come and go, the namespaces and the relay stay."""

    def __init__(self, testbed: NetworkTestbed, record: Record, nameserver: tuple[str, int]) -> None:
        self.testbed, self.record = testbed, record
        self._settings = HostSettings(lambda: [nameserver], PATIENCE_S, EVERYWHERE)

    def supervise(self) -> Links:
        """Begin as a new supervisor."""
        program = RelayProgram(
            lambda: (str(relay_path()),),
            self.testbed.pins / "relay.sock",
            self.record.started,
            self.record.earlier,
            lambda: os.pidfd_open(self.record.guardian, os.O_NONBLOCK),
        )
        return Links(self.testbed.pins, Relay(program, self._settings))


@asynccontextmanager
async def home(testbed: NetworkTestbed, guardian: int | None = None) -> AsyncIterator[tuple[Home, int]]:
    """A home, and a port of a server that has its names."""
    record = Record(guardian or os.getpid())
    async with serving() as port, knowing({GOOD: PUBLIC, EVIL: PUBLIC}) as (_, nameserver):
        made = Home(testbed, record, nameserver)
        try:
            yield made, port
        finally:
            last = made.supervise()
            await last.start()
            await last.aclose()
            last.sweep(keep=())


async def says(connected: socket.socket, text: bytes) -> bool:
    """Whether the server answers the same."""
    connected.sendall(text)
    return await asyncio.to_thread(connected.recv, len(text)) == text


async def test_connections_names_and_rules_outlive_the_supervisor(testbed: NetworkTestbed) -> None:
    async with home(testbed) as (at, port):
        first = at.supervise()
        guest = Guest(await first.take())
        guest.link.set_policy(ONLY_GOOD)
        address = await address_of(guest, GOOD)
        with await guest.connect(address, port) as connected:
            assert await says(connected, b"before")
            await first.aclose(stay=True)
            # Nobody is there, and the relay carries, judges and resolves on.
            assert await says(connected, b"meanwhile")
            assert await guest.is_reset(PUBLIC, port)
            assert await address_of(guest, GOOD) == address
            with await guest.connect(address, port) as another:
                assert await says(another, b"new")
            second = at.supervise()
            link = await second.adopt(guest.link.link_id)
            assert link is not None
            assert link.was_carried
            told: list[EgressDecision] = []
            link.guest.follow(told.append, lambda _: None)
            await eventually(lambda: any(one.host == PUBLIC and one.action == "deny" for one in told))
            link.set_policy(ONLY_GOOD)
            await second.start()
            assert await says(connected, b"after")
            assert [flow.address for flow in await link.flows()] == [address]
            link.set_policy(Policy(rules=(Rule(hosts=(EVIL,)),)))
            assert await reset_comes(connected)
        await link.aclose()
        await second.aclose()
        assert not at.record.runs


async def test_the_next_supervisor_has_the_listeners_when_the_relay_dies(testbed: NetworkTestbed) -> None:
    async with home(testbed) as (at, port):
        first = at.supervise()
        guest = Guest(await first.take())
        await first.aclose(stay=True)
        second = at.supervise()
        link = await second.adopt(guest.link.link_id)
        assert link is not None
        link.set_policy("internet")
        pid = at.record.pid
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: second.relay.pid not in (None, pid))
        with await guest.connect(PUBLIC, port) as connected:
            assert await says(connected, b"again")
        await link.aclose()
        await second.aclose()


async def test_a_link_that_nobody_claims_is_carried_no_more(testbed: NetworkTestbed) -> None:
    async with home(testbed) as (at, port):
        first = at.supervise()
        guest = Guest(await first.take())
        with await guest.connect(PUBLIC, port) as connected:
            assert await says(connected, b"before")
            await first.aclose(stay=True)
            second = at.supervise()
            await second.start()
            assert await reset_comes(connected)
        await second.aclose()


async def test_data_that_came_without_a_supervisor_wakes_a_sleeper(testbed: NetworkTestbed) -> None:
    async with home(testbed) as (at, port):
        first = at.supervise()
        guest = Guest(await first.take())
        with await guest.connect(PUBLIC, port) as connected:
            assert await says(connected, b"before")
            connected.sendall(b"question")
            await eventually(lambda: guest.link.guest.is_fresh or has_bytes(connected))
            guest.link.hold()
            guest.link.guest.watch(lambda _: None)
            await first.aclose(stay=True)
            second = at.supervise()
            link = await second.adopt(guest.link.link_id)
            assert link is not None
            link.set_policy("internet")
            link.release()
            assert await asyncio.to_thread(connected.recv, 8) == b"question"
            link.hold()
            woken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            link.guest.watch(woken.set_result)
            connected.sendall(b"more")  # the relay has taken nothing of it
            link.release()
            assert await asyncio.to_thread(connected.recv, 4) == b"more"
            woken.cancel()
        await link.aclose()
        await second.aclose()


def has_bytes(connected: socket.socket) -> bool:
    """Whether something has come. It does not wait: a socket with a timeout would, and stop the event loop."""
    return bool(select.select([connected], [], [], 0)[0])


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_relay_without_a_supervisor_ends_with_its_guardian(testbed: NetworkTestbed) -> None:
    with sleeping() as guardian:
        async with home(testbed, guardian.pid) as (at, port):
            first = at.supervise()
            guest = Guest(await first.take())
            with await guest.connect(PUBLIC, port) as connected:
                assert await says(connected, b"before")
                await first.aclose(stay=True)
                assert await says(connected, b"meanwhile")
                guardian.kill()
                assert await reset_comes(connected)
            await eventually(lambda: not at.record.runs)
            at.record.guardian = os.getpid()


@contextmanager
def hanging(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens as a relay does, and never answers."""
    program = f"""
import socket, time
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind({str(path)!r})
listener.listen()
print("listens", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listens\n"
            yield process
        finally:
            process.kill()


async def test_a_relay_that_does_not_answer_is_replaced(
    testbed: NetworkTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.network.relay.CALL_S", 0.5)
    async with home(testbed) as (at, port):
        with hanging(testbed.pins / "relay.sock") as process:
            at.record.started(process.pid, start_ticks(process.pid) or 0)
            links = at.supervise()
            guest = Guest(await links.take())
            with await guest.connect(PUBLIC, port) as connected:
                assert await says(connected, b"new")
            assert at.record.pid != process.pid
            assert process.wait(60) == -signal.SIGKILL
        await guest.link.aclose()
        await links.aclose()
