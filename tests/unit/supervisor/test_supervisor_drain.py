"""A drained home: everything sleeps, nothing wakes, and what ran before runs again."""

from __future__ import annotations

import asyncio
from typing import Any

from atoll.supervisor.state.drain_gate import DrainGate
from tests.unit.supervisor.harness import Harness, with_harness


async def drain(harness: Harness, **wanted: object) -> Any:
    answer = await harness.ask("POST", "/v1/drain", wanted)
    assert answer.status == 200, answer.body
    return answer.json


async def undrain(harness: Harness) -> Any:
    answer = await harness.ask("DELETE", "/v1/drain")
    assert answer.status == 200, answer.body
    return answer.json


async def state(harness: Harness, sandbox: Any) -> str:
    return str((await harness.ask("GET", f"/v1/sandboxes/{sandbox['sandbox_id']}")).json["state"])


@with_harness
async def test_what_ran_runs_again_and_what_slept_sleeps_on(harness: Harness) -> None:
    ran, paused, slept = [await harness.create() for _ in range(3)]
    await harness.ask("POST", f"/v1/sandboxes/{paused['sandbox_id']}/pause")
    await harness.asleep(slept)
    done = await drain(harness)
    assert sorted(done["suspended"]) == sorted([ran["sandbox_id"], paused["sandbox_id"]])
    assert (done["failed"], done["sandboxes"]) == ({}, [ran["sandbox_id"]])
    assert [await state(harness, one) for one in (ran, paused, slept)] == ["suspended"] * 3
    assert await undrain(harness) == {"woken": [ran["sandbox_id"]], "failed": {}}
    states = [await state(harness, one) for one in (ran, paused, slept)]
    assert states == ["running", "suspended", "suspended"]
    assert not harness.home.drain.exists()


@with_harness
async def test_nothing_starts_or_wakes_while_the_home_is_drained(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json["snapshot_id"]
    await drain(harness)
    refused = [
        await harness.ask("POST", "/v1/sandboxes", {}),
        await harness.ask("POST", "/v1/sandboxes", {"from_snapshot": snapshot}),
        await harness.ask("POST", f"{one}/wake"),
        await harness.ask("POST", f"{one}/resume"),
        await harness.ask("POST", f"{one}/fork", {"count": 1}),
        await harness.ask("POST", f"{one}/rollback", {"snapshot": snapshot}),
    ]
    assert [answer.status for answer in refused] == [503] * 6
    assert {(answer.json["code"], answer.json["retryable"]) for answer in refused} == {("draining", True)}
    assert await state(harness, made) == "suspended"
    assert len(harness.system.inventory.all()) == 1


@with_harness
async def test_a_drain_outlives_its_supervisor(harness: Harness) -> None:
    made = await harness.create()
    await drain(harness)
    await harness.aclose()
    await harness.start()
    told = (await harness.ask("GET", "/v1/drain")).json
    assert (told["drained"], told["sandboxes"]) == (True, [made["sandbox_id"]])
    assert (await harness.ask("POST", "/v1/sandboxes", {})).status == 503
    assert (await undrain(harness))["woken"] == [made["sandbox_id"]]
    assert (await harness.ask("GET", "/v1/drain")).json["drained"] is False


@with_harness
async def test_the_end_of_a_drain_goes_on_after_a_crash(harness: Harness) -> None:
    made = await harness.create()
    await drain(harness)
    await harness.system.drain_gate.open()
    await harness.crash()
    await harness.start()
    await harness.until(lambda: not harness.home.drain.exists())
    assert await state(harness, made) == "running"


@with_harness
async def test_what_cannot_be_suspended_runs_on_and_the_reason_is_told(harness: Harness) -> None:
    both = [(await harness.create())["sandbox_id"] for _ in range(2)]
    harness.host.fail_next("checkpoint")
    done = await drain(harness)
    [(stuck, why)] = done["failed"].items()
    assert "checkpoint" in why
    assert await state(harness, {"sandbox_id": stuck}) == "running"
    assert [stuck, *done["suspended"]] in (both, both[::-1])
    again = await drain(harness)
    assert (again["suspended"], again["failed"]) == ([stuck], {})
    assert sorted(again["sandboxes"]) == sorted(both)


@with_harness
async def test_what_was_cut_short_between_two_layers_is_told_once_and_the_drain_ends(
    harness: Harness,
) -> None:
    made = await harness.create()
    await harness.asleep(made)
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.inventory.change(sandbox, napping=True)
    done = await drain(harness)
    assert (done["suspended"], list(done["failed"])) == ([], [made["sandbox_id"]])
    await undrain(harness)


@with_harness
async def test_what_is_being_made_is_waited_for_and_sleeps_too(harness: Harness) -> None:
    harness.images.have = False
    harness.images.may_build = asyncio.Event()
    making = asyncio.create_task(harness.create())
    await harness.until(lambda: harness.images.builds)
    draining = asyncio.create_task(drain(harness))
    await harness.until(lambda: harness.system.drain_gate.is_closed)
    harness.images.may_build.set()
    made = await making
    assert (await draining)["suspended"] == [made["sandbox_id"]]
    assert await state(harness, made) == "suspended"


@with_harness
async def test_who_does_not_want_to_wait_is_told_what_still_runs(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    async with sandbox.lock:
        done = await drain(harness, timeout_s=0.05)
        assert "0.05 s" in done["failed"][made["sandbox_id"]]
    await harness.until(lambda: sandbox.row.state == "suspended")  # it has begun, so it ends
    assert (await harness.ask("POST", "/v1/drain", {"timeout_s": 0})).status == 400


@with_harness
async def test_a_sandbox_that_was_killed_meanwhile_is_left_out(harness: Harness) -> None:
    made = await harness.create()
    await drain(harness)
    await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    assert await undrain(harness) == {"woken": [], "failed": {}}


@with_harness
async def test_one_that_does_not_wake_is_told_and_the_home_is_open(harness: Harness) -> None:
    made = await harness.create()
    await drain(harness)
    async with harness.system.inventory.sandbox(made["sandbox_id"]).lock:  # its checksum may still be made
        for file in harness.system.paths.checkpoint(made["sandbox_id"]).iterdir():
            file.unlink()
    done = await undrain(harness)
    assert (done["woken"], list(done["failed"])) == ([], [made["sandbox_id"]])
    await harness.create()


@with_harness
async def test_a_damaged_record_keeps_the_home_drained(harness: Harness) -> None:
    harness.home.drain.write_text("{")
    gate = DrainGate(harness.home.drain)
    gate.load()
    assert gate.is_closed


@with_harness
async def test_what_crashed_is_not_recovered_until_the_drain_is_over_and_loses_no_try(
    harness: Harness,
) -> None:
    made = await harness.create(lifecycle={"auto_recover": True})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.drain_gate.close(harness.now_s)
    harness.machine_of(made["sandbox_id"]).crash()
    await harness.until(lambda: sandbox.row.state == "crashed")
    for _ in range(10):
        harness.boot_s += 3600
        harness.system.recoveries.look()
    assert not harness.system.recoveries.waiting
    await undrain(harness)
    await harness.until(lambda: sandbox.row.state == "running")
