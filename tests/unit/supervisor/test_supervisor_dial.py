"""Connecting into a sandbox that changes meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import AsleepError, DeadlineError, SandboxCrashedError
from atoll.protocol import AGENT_PORT, DialRequest
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness

Meanwhile = Callable[[], Coroutine[Any, Any, object]]


class Guest:
    """Its first connection fails as something else is done to it; those that follow are taken."""

    def __init__(self, failure: OSError, meanwhile: Meanwhile) -> None:
        self.dialled = 0
        self.theirs: list[socket.socket] = []
        self._failure = failure
        self._meanwhile = meanwhile

    async def dial(self, port: int, timeout_s: float) -> socket.socket:
        self.dialled += 1
        if self.dialled == 1:
            await self._meanwhile()
            raise self._failure
        ours, theirs = socket.socketpair()
        self.theirs.append(theirs)
        return ours


async def _dial(harness: Harness, made: Any, guest: Guest, port: int = 80) -> None:
    request = DialRequest(sandbox=made["sandbox_id"], port=port)
    with (
        patch.object(FakeLink, "dial", guest.dial, create=True),
        patch("atoll.supervisor.state.running_machine._NOTICED_S", 0.01),
    ):
        answer, connection = await harness.system.dialling.dial(request)
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "running"
    assert (answer.sandbox_id, answer.recovered) == (made["sandbox_id"], None)
    for end in (connection, *guest.theirs):
        end.close()


@pytest.mark.parametrize(
    ("asked", "failure", "port"),
    [
        ("pause", ConnectionAbortedError(), 80),
        ("suspend", ConnectionAbortedError(), 80),
        ("suspend", ConnectionRefusedError(), AGENT_PORT),
    ],
)
def test_who_connects_while_a_sandbox_is_put_to_sleep_wakes_it_and_is_connected(
    asked: str, failure: OSError, port: int
) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        guest = Guest(failure, lambda: harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/{asked}"))
        await _dial(harness, made, guest, port)
        assert guest.dialled == 2

    with_harness(lived)()


@with_harness
async def test_those_who_wait_for_a_wake_connect_in_the_order_in_which_they_came(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    ends: list[socket.socket] = []

    async def slow_at_times(_: FakeLink, port: int, __: float) -> socket.socket:
        await asyncio.sleep(0.005 * (len(ends) % 3))
        ends.extend(socket.socketpair())
        return ends[-2]

    dial = harness.system.dialling.dial
    with patch.object(FakeLink, "dial", slow_at_times, create=True):
        request = DialRequest(sandbox=made["sandbox_id"], port=80)
        taken = await asyncio.gather(*(dial(request) for _ in range(50)))
    assert [connection for _, connection in taken] == ends[::2]
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.generation == 2
    assert harness.system.dialling._queues == {}
    for end in ends:
        end.close()


@with_harness
async def test_a_port_that_does_not_answer_keeps_those_behind_it_only_for_a_moment(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    answers = asyncio.Event()
    dialled: list[socket.socket] = []

    async def first_hangs(_: FakeLink, port: int, __: float) -> socket.socket:
        dialled.extend(socket.socketpair())
        ours = dialled[-2]
        if len(dialled) == 2:
            await answers.wait()
        return ours

    dial = harness.system.dialling.dial
    with patch.object(FakeLink, "dial", first_hangs, create=True):
        request = DialRequest(sandbox=made["sandbox_id"], port=80)
        first, *others = [asyncio.create_task(dial(request)) for _ in range(5)]
        await asyncio.gather(*others)
        assert not first.done()
        answers.set()
        await first
    for end in dialled:
        end.close()


@with_harness
async def test_who_connects_while_a_sandbox_is_put_to_sleep_that_is_to_sleep_on_is_told_so(
    harness: Harness,
) -> None:
    made = await harness.create(lifecycle={"auto_resume": False})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    guest = Guest(ConnectionAbortedError(), lambda: harness.ask("POST", f"{one}/pause"))
    with pytest.raises(AsleepError):
        await _dial(harness, made, guest)
    assert guest.dialled == 1


@with_harness
async def test_a_guest_that_runs_and_does_not_answer_is_not_dialled_again(harness: Harness) -> None:
    made = await harness.create()
    guest = Guest(TimeoutError(), lambda: harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}"))
    with pytest.raises(DeadlineError):
        await _dial(harness, made, guest)
    assert guest.dialled == 1


@with_harness
async def test_who_connects_while_a_sandbox_crashes_hears_of_it(harness: Harness) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])

    async def crash() -> None:
        machine.crash()

    guest = Guest(ConnectionResetError(), crash)
    with pytest.raises(SandboxCrashedError):
        await _dial(harness, made, guest)
    assert guest.dialled == 1


@with_harness
async def test_who_connects_to_a_port_of_a_guest_whose_agent_is_gone_hears_of_its_end(
    harness: Harness,
) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])
    dialled: list[int] = []

    async def refused(_: FakeLink, port: int, __: float) -> socket.socket:
        dialled.append(port)
        if port == AGENT_PORT:
            machine.crash()
        raise ConnectionRefusedError

    with patch.object(FakeLink, "dial", refused, create=True), pytest.raises(SandboxCrashedError):
        await harness.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=80))
    assert dialled == [80, AGENT_PORT]
