"""Wakes and starts wait for their turns."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from atoll.supervisor.lifecycle.turns import Turns
from tests.unit.supervisor.harness import Harness, with_harness


@pytest.mark.anyio
async def test_only_so_many_have_their_turn_at_once_and_all_get_one() -> None:
    turns, now, most, done = Turns(at_once=3), 0, 0, 0

    async def take() -> None:
        nonlocal now, most, done
        async with turns.turn():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            done += 1

    await asyncio.gather(*(take() for _ in range(20)))
    assert (most, done) == (3, 20)


@pytest.mark.anyio
async def test_one_that_takes_long_lets_the_next_begin_and_gives_back_only_one_turn() -> None:
    turns = Turns(at_once=1, patience_s=0.01)
    async with turns.turn():
        await asyncio.wait_for(_taken(turns), 60)
    patient = Turns(at_once=1, patience_s=600)
    with contextlib.suppress(ValueError):
        async with patient.turn():
            raise ValueError
    async with patient.turn():
        second = asyncio.create_task(_taken(patient))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
    await second


async def _taken(turns: Turns) -> None:
    async with turns.turn():
        pass


@with_harness
async def test_many_clients_wake_a_sandbox_once(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    path = f"/v1/sandboxes/{made['sandbox_id']}/wake"
    answers = await asyncio.gather(*(harness.ask("POST", path) for _ in range(50)))
    assert {answer.json["state"] for answer in answers} == {"running"}
    assert len(harness.host.machines) == 1
    assert harness.agents.inits[-1].generation == 2


@with_harness
async def test_many_wakes_at_once_take_turns_and_all_end(harness: Harness) -> None:
    made = [await harness.create() for _ in range(12)]
    for each in made:
        await harness.asleep(each)
    harness.system._steps.turns._free = asyncio.Semaphore(2)
    begun = harness.host.hold("start")
    wakes = [
        asyncio.create_task(harness.ask("POST", f"/v1/sandboxes/{each['sandbox_id']}/wake")) for each in made
    ]
    await harness.until(lambda: len(harness.links.open) == 2)
    assert not any(wake.done() for wake in wakes)
    begun.set()
    assert [answer.status for answer in await asyncio.gather(*wakes)] == [200] * 12
    assert len(harness.links.open) == 12
