"""One sandbox wakes another: once for all who wait, not again and again, and in no client's way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest

from atoll.errors import EngineError
from atoll.protocol import AGENT_PORT, DialRequest
from atoll.supervisor.lifecycle.wake import Wakes
from atoll.types import Policy, Rule
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness


@asynccontextmanager
async def answering() -> AsyncIterator[list[socket.socket]]:
    """Servers inside answer at every port."""
    ends: list[socket.socket] = []

    async def dial(_: FakeLink, port: int, __: float) -> socket.socket:
        ends.extend(socket.socketpair())
        return ends[-2]

    with patch.object(FakeLink, "dial", dial, create=True):
        yield ends
    for end in ends:
        end.close()


@with_harness
async def test_all_who_want_a_sleeper_wake_it_once(harness: Harness) -> None:
    made = await harness.create(name="shop")
    await harness.asleep(made)
    reach = harness.system.neighbours.reach
    async with answering() as ends:
        taken = await asyncio.gather(*(reach(None, "shop", 80) for _ in range(50)))
        assert len(set(taken)) == 50
        assert harness.system.inventory.sandbox("shop").row.generation == 2
        assert harness.system.dialling._queues == {}
        sandbox = harness.system.inventory.sandbox("shop")
        sandbox.dialled = False
        assert await reach(None, made["sandbox_id"], 80) is ends[-2]
        assert sandbox.dialled  # so an automatic snapshot knows that it may have changed


@with_harness
async def test_one_that_cannot_be_woken_is_left_alone_for_a_while(harness: Harness) -> None:
    made = await harness.create(name="shop")
    await harness.asleep(made)
    reach, tries = harness.system.neighbours.reach, 0

    async def fails(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise EngineError("its disk is damaged")

    async with answering():
        with patch.object(Wakes, "use", fails):
            waiting = [reach(None, "shop", 80) for _ in range(20)]
            told = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(one) for one in told} == {ConnectionRefusedError}
            with pytest.raises(ConnectionRefusedError, match="its disk is damaged"):
                await reach(None, "shop", 80)
            assert tries == 1
            harness.boot_s += 6
            with pytest.raises(ConnectionRefusedError):
                await reach(None, "shop", 80)
            assert tries == 2
        with pytest.raises(ConnectionRefusedError):
            await reach(None, "shop", 80)
        harness.boot_s += 6
        await reach(None, "shop", 80)


@with_harness
async def test_only_those_of_the_team_are_reached_and_never_the_agent(harness: Harness) -> None:
    assert (await harness.ask("POST", "/v1/teams", {"name": "reef"})).status == 200
    await harness.create(name="shop", team="reef")
    reach = harness.system.neighbours.reach
    async with answering():
        await reach("reef", "shop", 80)
        for team, ref, port in ((None, "shop", 80), ("reef", "no-shop", 80), ("reef", "shop", AGENT_PORT)):
            with pytest.raises(PermissionError):
                await reach(team, ref, port)
        await harness.create(name="no-shop", team="reef")
        with pytest.raises(PermissionError):  # it was not there a moment ago
            await reach("reef", "no-shop", 80)
        harness.boot_s += 2
        await reach("reef", "no-shop", 80)


@with_harness
async def test_nobody_is_reached_before_the_supervisor_has_started_or_once_it_ends(harness: Harness) -> None:
    made = await harness.create(name="shop")
    await harness.asleep(made)
    harness.system._close_monitors()
    with pytest.raises(ConnectionRefusedError, match="starts or ends"):
        await harness.system.neighbours.reach(None, "shop", 80)
    assert harness.system.inventory.sandbox("shop").row.state == "suspended"


@with_harness
async def test_a_client_hears_of_a_recovery_that_a_neighbour_has_caused(harness: Harness) -> None:
    made = await harness.create(name="shop")
    sandbox = harness.system.inventory.sandbox("shop")
    harness.machine_of(made["sandbox_id"]).crash()
    await harness.until(lambda: sandbox.row.state == "crashed")
    async with answering():
        await harness.system.neighbours.reach(None, "shop", 80)
        assert sandbox.row.recovered is not None
        request = DialRequest(sandbox="shop", port=80)
        told = [(await harness.system.dialling.dial(request))[0].recovered for _ in range(2)]
    assert told == [sandbox.row.recovered, None]


@with_harness
async def test_a_policy_of_another_teams_snapshot_opens_nothing_of_ones_own(harness: Harness) -> None:
    for name in ("reef", "bay"):
        assert (await harness.ask("POST", "/v1/teams", {"name": name})).status == 200
    policy = {
        "rules": [
            {"hosts": ["db.sandbox.atoll.internal"]},
            {"action": "deny", "hosts": ["x.sandbox.atoll.internal"]},
            {"hosts": ["*.sandbox.atoll.internal", "a.example"]},
        ]
    }
    made = await harness.create(team="reef", network=policy)
    stored = await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    assert stored.status == 200, stored.body
    networks = {}
    for team in ("reef", "bay"):
        copy = await harness.create(team=team, from_snapshot=stored.json["snapshot_id"])
        networks[team] = harness.system.inventory.sandbox(copy["sandbox_id"]).row.network
    assert networks["reef"] == harness.system.inventory.sandbox(made["sandbox_id"]).row.network
    assert networks["bay"] == Policy(
        rules=(
            Rule(action="deny", hosts=("x.sandbox.atoll.internal",)),
            Rule(hosts=("a.example",)),
        )
    )
