from __future__ import annotations

import asyncio

import pytest

from atoll.supervisor.lifecycle.progress import FIRST_S, told_if_slow
from atoll.types import Progress
from tests.unit.supervisor.harness import Harness, with_harness


@pytest.mark.anyio
async def test_a_slow_change_is_told_of_until_it_is_over() -> None:
    told: list[Progress] = []
    thrice = asyncio.Event()

    def report(progress: Progress) -> None:
        told.append(progress)
        if len(told) == 3:
            thrice.set()

    async with told_if_slow(report, lambda: Progress(step="slow", done=len(told)), first_s=0, each_s=0):
        await thrice.wait()
    count = len(told)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(told) == count
    assert [progress.done for progress in told[:3]] == [0, 1, 2]


@pytest.mark.anyio
async def test_a_quick_change_is_not_told_of() -> None:
    told: list[Progress] = []
    async with told_if_slow(told.append, lambda: Progress(step="slow"), first_s=60):
        await asyncio.sleep(0)
    assert told == []


@pytest.mark.anyio
async def test_what_goes_wrong_meanwhile_is_raised() -> None:
    with pytest.raises(ValueError, match="broken"):
        async with told_if_slow(lambda _: None, lambda: Progress(step="slow"), first_s=0, each_s=0):
            await asyncio.sleep(0)
            raise ValueError("broken")


@with_harness
async def test_a_sandbox_from_a_snapshot_that_takes_a_while_is_told_of(harness: Harness) -> None:
    made = await harness.create()
    kept = (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})).json
    going_on = harness.host.hold("start")
    spec, accept = {"from_snapshot": kept["snapshot_id"]}, {"accept": "application/x-ndjson"}
    asking = asyncio.create_task(harness.ask("POST", "/v1/sandboxes", spec, accept))
    await asyncio.sleep(1.2 * FIRST_S)
    going_on.set()
    lines = (await asking).body.decode().splitlines()
    assert '"restoring the snapshot"' in lines[0] and '"result"' in lines[-1]
