"""Connecting into a sandbox that changes meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import AsleepError, DeadlineError, SandboxCrashedError
from atoll.protocol import AGENT_PORT, DialRequest
from tests.unit.supervisor.world import FakeLink, World, in_world

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


async def _dial(world: World, made: Any, guest: Guest, port: int = 80) -> None:
    request = DialRequest(sandbox=made["sandbox_id"], port=port)
    with (
        patch.object(FakeLink, "dial", guest.dial, create=True),
        patch("atoll.supervisor.machines.running_machine._NOTICED_S", 0.01),
    ):
        answer, connection = await world.system.dialling.dial(request)
    assert world.system.registry.sandbox(made["sandbox_id"]).row.state == "running"
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
    async def lived(world: World) -> None:
        made = await world.create()
        guest = Guest(failure, lambda: world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/{asked}"))
        await _dial(world, made, guest, port)
        assert guest.dialled == 2

    in_world(lived)()


@in_world
async def test_who_connects_while_a_sandbox_is_put_to_sleep_that_is_to_sleep_on_is_told_so(
    world: World,
) -> None:
    made = await world.create(lifecycle={"auto_resume": False})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    guest = Guest(ConnectionAbortedError(), lambda: world.ask("POST", f"{one}/pause"))
    with pytest.raises(AsleepError):
        await _dial(world, made, guest)
    assert guest.dialled == 1


@in_world
async def test_a_guest_that_runs_and_does_not_answer_is_not_dialled_again(world: World) -> None:
    made = await world.create()
    guest = Guest(TimeoutError(), lambda: world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}"))
    with pytest.raises(DeadlineError):
        await _dial(world, made, guest)
    assert guest.dialled == 1


@in_world
async def test_who_connects_while_a_sandbox_crashes_hears_of_it(world: World) -> None:
    made = await world.create()
    machine = world.machine_of(made["sandbox_id"])

    async def crash() -> None:
        machine.crash()

    guest = Guest(ConnectionResetError(), crash)
    with pytest.raises(SandboxCrashedError):
        await _dial(world, made, guest)
    assert guest.dialled == 1


@in_world
async def test_who_connects_to_a_port_of_a_guest_whose_agent_is_gone_hears_of_its_end(world: World) -> None:
    made = await world.create()
    machine = world.machine_of(made["sandbox_id"])
    dialled: list[int] = []

    async def refused(_: FakeLink, port: int, __: float) -> socket.socket:
        dialled.append(port)
        if port == AGENT_PORT:
            machine.crash()
        raise ConnectionRefusedError

    with patch.object(FakeLink, "dial", refused, create=True), pytest.raises(SandboxCrashedError):
        await world.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=80))
    assert dialled == [80, AGENT_PORT]
