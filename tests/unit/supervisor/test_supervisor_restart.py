"""What a new supervisor makes of what an earlier one left."""

from __future__ import annotations

import asyncio
import errno
from unittest.mock import patch

import pytest

from atoll.errors import EngineError
from atoll.supervisor.settings import Settings
from atoll.testing.fake_engine import FakeMachine
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of


@with_harness
async def test_a_running_sandbox_is_adopted_without_a_restart(harness: Harness) -> None:
    made = await harness.create(name="one")
    machine = harness.machine_of(made["sandbox_id"])
    starts = len(harness.host.calls)
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", "/v1/sandboxes/one")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]) is machine
    assert {call.method for call in harness.host.calls[starts:]} <= {"adopt", "stats"}


@with_harness
async def test_an_idle_sandbox_is_still_paused_and_woken_by_data(harness: Harness) -> None:
    made = await harness.create()
    await harness.pause_as_idle(made)
    await harness.crash()
    await harness.start()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    assert sandbox.row.state == "paused"
    (link,) = harness.links.open.values()

    def woken() -> bool:
        link.received += 1000
        return sandbox.row.state == "running"

    await harness.until(woken)


@with_harness
async def test_a_machine_that_was_frozen_just_before_the_crash_runs_as_its_row_says(harness: Harness) -> None:
    made = await harness.create()
    await harness.system.inventory.sandbox(made["sandbox_id"]).require_running().freeze()
    harness.agents.deaf = True
    await harness.crash()
    await harness.start()
    assert not harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_guests_that_may_stand_still_go_on_beside_each_other_and_nobody_waits_for_each(
    harness: Harness,
) -> None:
    unsure = [await harness.create() for _ in range(3)]
    healthy = await harness.create()
    for made in unsure:
        running = harness.system.inventory.sandbox(made["sandbox_id"]).require_running()
        await running.freeze()
        harness.host.fail_next("resume")
        with pytest.raises(EngineError):
            await running.thaw()
        assert running.may_be_frozen
    await harness.crash()
    asked: list[FakeMachine] = []
    together: list[FakeMachine] = []

    async def resume(machine: FakeMachine) -> None:
        asked.append(machine)
        inventory = harness.system.inventory
        async with asyncio.timeout(60):
            await harness.until(lambda: len(asked) == 3 and inventory.sandbox(healthy["sandbox_id"]).running)
        together.append(machine)
        machine.paused = False

    with patch.object(FakeMachine, "resume", resume):
        await harness.start()
    assert len(together) == 3
    states = [
        (await harness.ask("GET", f"/v1/sandboxes/{one['sandbox_id']}")).json["state"] for one in unsure
    ]
    assert states == ["running"] * 3
    assert not any(harness.machine_of(made["sandbox_id"]).paused for made in unsure)


@with_harness
async def test_a_guest_that_slept_over_a_restart_is_told_that_its_connections_ended(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    (link,) = harness.links.open.values()
    link.is_held = True
    await harness.asleep(made)
    assert list(harness.links.open.values()) == [link]
    await harness.crash()
    await harness.start()
    assert harness.links.open == {}
    await harness.ask("POST", f"{one}/wake")
    (new,) = harness.links.open.values()
    assert "reset 1" in new.calls


@with_harness
async def test_a_sandbox_whose_machine_died_meanwhile_is_crashed_with_a_reason(harness: Harness) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])
    await harness.crash()
    machine.crash()
    await harness.start()
    told = (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json
    assert told["state"] == "crashed"
    assert "no supervisor" in told["reason"]
    assert harness.links.open == {}


@with_harness
async def test_a_sandbox_whose_network_was_lost_is_crashed_and_starts_again(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.crash()
    harness.links.open.clear()
    harness.host.machines.clear()
    await harness.start()
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"


@with_harness_of(Settings(pool_size=1))
async def test_what_nobody_owns_is_removed(harness: Harness) -> None:
    made = await harness.create()
    await harness.until(lambda: harness.system.pool.ids())
    await harness.crash()
    (harness.home.snapshots / "new-broken").mkdir()
    (harness.home.layers / "lost").mkdir()
    (harness.home.sandboxes / made["sandbox_id"] / "d7").mkdir()
    await harness.start()
    assert [entry.name for entry in harness.home.sandboxes.iterdir()] == [made["sandbox_id"]]
    assert not (harness.home.sandboxes / made["sandbox_id"] / "d7").exists()
    await harness.until(lambda: list(harness.home.snapshots.iterdir()) == [])
    assert harness.layers.ids() == []
    assert len(harness.links.open) == 1
    assert (await harness.ask("GET", "/v1/leftovers")).json == []


@with_harness
async def test_a_freeze_that_cannot_be_undone_loses_no_layer_and_keeps_nobody_from_starting(
    harness: Harness,
) -> None:
    made, other = await harness.create(), await harness.create()
    await harness.asleep(made)
    await harness.crash()
    disk = harness.home.sandboxes / made["sandbox_id"] / "d1"
    for layer in ("all-it-has", "nobodys"):
        (harness.home.layers / layer).mkdir()
    (disk / "frozen").write_text("all-it-has")
    await harness.start()
    await harness.until(lambda: harness.layers.ids() == ["all-it-has"])
    assert (await harness.ask("GET", f"/v1/sandboxes/{other['sandbox_id']}")).json["state"] == "running"
    await harness.ask("DELETE", "/v1/leftovers")
    assert harness.layers.ids() == ["all-it-has"]


@with_harness
async def test_leftovers_are_shown_and_removed(harness: Harness) -> None:
    (harness.home.sandboxes / "lost").mkdir()
    (shown,) = (await harness.ask("GET", "/v1/leftovers")).json
    assert shown["kind"] == "directory"
    assert shown["name"].endswith("sandboxes/lost")
    assert (await harness.ask("DELETE", "/v1/leftovers")).json == [shown]
    assert not (harness.home.sandboxes / "lost").exists()


@with_harness
async def test_what_is_made_while_leftovers_are_looked_for_is_none(harness: Harness) -> None:
    (harness.home.sandboxes / "fresh").mkdir()
    known: set[str] = set()

    def ids() -> set[str]:
        before = set(known)
        known.add("fresh")
        return before

    with patch.object(harness.system.leftovers, "pool_ids", ids):
        assert await harness.system.leftovers.collect() == []
    assert (harness.home.sandboxes / "fresh").is_dir()


@with_harness
async def test_a_kill_that_was_cut_short_is_finished(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.inventory.change(sandbox, durable=True, state="killed", name=None)
    await harness.crash()
    await harness.start()
    assert harness.system.inventory.all() == []
    assert list(harness.home.sandboxes.iterdir()) == []


@with_harness
async def test_stop_suspends_everything_and_wants_to_leave(harness: Harness) -> None:
    made = await harness.create()
    answer = await harness.ask("POST", "/stop")
    assert answer.json == {"stopping": True, "failed": {}}
    await harness.stopping.asked()
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "suspended"


@with_harness
async def test_what_is_still_being_made_at_a_stop_sleeps_too(harness: Harness) -> None:
    making = asyncio.create_task(harness.create())
    assert (await harness.ask("POST", "/stop")).json["stopping"]
    assert harness.stopping.asleep
    await harness.system.fall_asleep()
    made = await making
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "suspended"


@with_harness
async def test_what_cannot_be_suspended_keeps_the_supervisor_unless_it_is_forced(harness: Harness) -> None:
    made = await harness.create()
    harness.host.fail_next("checkpoint")
    refused = await harness.ask("POST", "/stop")
    assert (refused.status, refused.json["code"]) == (500, "engine_failed")
    assert made["sandbox_id"] in refused.json["message"]
    harness.host.fail_next("checkpoint")
    assert (await harness.ask("POST", "/stop?force=1")).json["stopping"]
    await harness.stopping.asked()
    assert harness.machine_of(made["sandbox_id"]).alive


@with_harness
async def test_suspend_all_tells_what_failed_and_goes_on(harness: Harness) -> None:
    first, second = await harness.create(), await harness.create()
    harness.host.fail_next("checkpoint")
    told = (await harness.ask("POST", "/suspend-all")).json
    assert list(told["failed"]) == [first["sandbox_id"]]
    assert told["suspended"] == [second["sandbox_id"]]


@with_harness
async def test_a_sandbox_is_not_lost_for_want_of_descriptors(harness: Harness) -> None:
    made = await harness.create()
    await harness.crash()
    lacking = iter([OSError(errno.EMFILE, "Too many open files")] * 2)
    adopt = harness.links.adopt

    async def adopt_later(link_id: str) -> FakeLink | None:
        for error in lacking:
            raise error
        return await adopt(link_id)

    with patch.object(harness.links, "adopt", adopt_later):
        await harness.start()
    assert not list(lacking)
    assert (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json["state"] == "running"
