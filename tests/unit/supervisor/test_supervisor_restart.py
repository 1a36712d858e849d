"""What a new supervisor makes of what an earlier one left."""

from __future__ import annotations

import asyncio
import errno
from unittest.mock import patch

import pytest

from atoll.errors import EngineError
from atoll.supervisor.settings import Settings
from atoll.testing.fake_engine import FakeMachine
from tests.unit.supervisor.world import FakeLink, World, in_world, in_world_of


@in_world
async def test_a_running_sandbox_is_adopted_without_a_restart(world: World) -> None:
    made = await world.create(name="one")
    machine = world.machine_of(made["sandbox_id"])
    starts = len(world.host.calls)
    await world.crash()
    await world.start()
    assert (await world.ask("GET", "/v1/sandboxes/one")).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]) is machine
    assert {call.method for call in world.host.calls[starts:]} <= {"adopt", "stats"}


@in_world
async def test_a_paused_sandbox_is_still_paused_and_woken_by_traffic(world: World) -> None:
    made = await world.create()
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    await world.crash()
    await world.start()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    assert sandbox.row.state == "paused"
    (link,) = world.links.open.values()

    def woken() -> bool:
        link.received += 1000
        return sandbox.row.state == "running"

    await world.until(woken)


@in_world
async def test_a_machine_that_was_frozen_just_before_the_crash_runs_as_its_row_says(world: World) -> None:
    made = await world.create()
    await world.system.registry.sandbox(made["sandbox_id"]).require_running().freeze()
    world.agents.deaf = True
    await world.crash()
    await world.start()
    assert not world.machine_of(made["sandbox_id"]).paused


@in_world
async def test_guests_that_may_stand_still_go_on_beside_each_other_and_nobody_waits_for_each(
    world: World,
) -> None:
    unsure = [await world.create() for _ in range(3)]
    healthy = await world.create()
    for made in unsure:
        running = world.system.registry.sandbox(made["sandbox_id"]).require_running()
        await running.freeze()
        world.host.fail_next("resume")
        with pytest.raises(EngineError):
            await running.thaw()
        assert running.may_be_frozen
    await world.crash()
    asked: list[FakeMachine] = []
    together: list[FakeMachine] = []

    async def resume(machine: FakeMachine) -> None:
        asked.append(machine)
        registry = world.system.registry
        async with asyncio.timeout(5):
            await world.until(lambda: len(asked) == 3 and registry.sandbox(healthy["sandbox_id"]).running)
        together.append(machine)
        machine.paused = False

    with patch.object(FakeMachine, "resume", resume):
        await world.start()
    assert len(together) == 3
    states = [(await world.ask("GET", f"/v1/sandboxes/{one['sandbox_id']}")).json["state"] for one in unsure]
    assert states == ["running"] * 3
    assert not any(world.machine_of(made["sandbox_id"]).paused for made in unsure)


@in_world
async def test_a_suspended_sandbox_keeps_its_link_over_a_restart(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.ask("POST", f"{one}/suspend")
    (link,) = world.links.open.values()
    await world.crash()
    await world.start()
    await world.ask("POST", f"{one}/wake")
    assert list(world.links.open.values()) == [link]


@in_world
async def test_a_sandbox_whose_machine_died_meanwhile_is_crashed_with_a_reason(world: World) -> None:
    made = await world.create()
    machine = world.machine_of(made["sandbox_id"])
    await world.crash()
    machine.crash()
    await world.start()
    told = (await world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json
    assert told["state"] == "crashed"
    assert "no supervisor" in told["reason"]
    assert world.links.open == {}


@in_world
async def test_a_sandbox_whose_network_was_lost_is_crashed_and_starts_again(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.crash()
    world.links.open.clear()
    world.host.machines.clear()
    await world.start()
    assert (await world.ask("GET", one)).json["state"] == "crashed"
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"


@in_world_of(Settings(pool_size=1))
async def test_what_nobody_owns_is_removed(world: World) -> None:
    made = await world.create()
    await world.until(lambda: world.system.pool.ids())
    await world.crash()
    (world.home.snapshots / "new-broken").mkdir()
    (world.home.layers / "lost").mkdir()
    (world.home.sandboxes / made["sandbox_id"] / "d7").mkdir()
    await world.start()
    assert [entry.name for entry in world.home.sandboxes.iterdir()] == [made["sandbox_id"]]
    assert not (world.home.sandboxes / made["sandbox_id"] / "d7").exists()
    await world.until(lambda: list(world.home.snapshots.iterdir()) == [])
    assert world.layers.ids() == []
    assert len(world.links.open) == 1
    assert (await world.ask("GET", "/v1/leftovers")).json == []


@in_world
async def test_a_freeze_that_cannot_be_undone_loses_no_layer_and_keeps_nobody_from_starting(
    world: World,
) -> None:
    made, other = await world.create(), await world.create()
    await world.asleep(made)
    await world.crash()
    disk = world.home.sandboxes / made["sandbox_id"] / "d1"
    for layer in ("all-it-has", "nobodys"):
        (world.home.layers / layer).mkdir()
    (disk / "frozen").write_text("all-it-has")
    await world.start()
    await world.until(lambda: world.layers.ids() == ["all-it-has"])
    assert (await world.ask("GET", f"/v1/sandboxes/{other['sandbox_id']}")).json["state"] == "running"
    await world.ask("DELETE", "/v1/leftovers")
    assert world.layers.ids() == ["all-it-has"]


@in_world
async def test_leftovers_are_shown_and_removed(world: World) -> None:
    (world.home.sandboxes / "lost").mkdir()
    (shown,) = (await world.ask("GET", "/v1/leftovers")).json
    assert shown["kind"] == "directory"
    assert shown["name"].endswith("sandboxes/lost")
    assert (await world.ask("DELETE", "/v1/leftovers")).json == [shown]
    assert not (world.home.sandboxes / "lost").exists()


@in_world
async def test_what_is_made_while_leftovers_are_looked_for_is_none(world: World) -> None:
    (world.home.sandboxes / "fresh").mkdir()
    known: set[str] = set()

    def ids() -> set[str]:
        before = set(known)
        known.add("fresh")
        return before

    with patch.object(world.system.leftovers, "_pool_ids", ids):
        assert await world.system.leftovers.collect() == []
    assert (world.home.sandboxes / "fresh").is_dir()


@in_world
async def test_a_kill_that_was_cut_short_is_finished(world: World) -> None:
    made = await world.create()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    await world.system.registry.change(sandbox, durable=True, state="killed", name=None)
    await world.crash()
    await world.start()
    assert world.system.registry.all() == []
    assert list(world.home.sandboxes.iterdir()) == []


@in_world
async def test_stop_suspends_everything_and_wants_to_leave(world: World) -> None:
    made = await world.create()
    answer = await world.ask("POST", "/stop")
    assert answer.json == {"stopping": True, "failed": {}}
    await world.stopping.asked()
    assert world.system.registry.sandbox(made["sandbox_id"]).row.state == "suspended"


@in_world
async def test_what_is_still_being_made_at_a_stop_sleeps_too(world: World) -> None:
    making = asyncio.create_task(world.create())
    assert (await world.ask("POST", "/stop")).json["stopping"]
    assert world.stopping.asleep
    await world.system.fall_asleep()
    made = await making
    assert world.system.registry.sandbox(made["sandbox_id"]).row.state == "suspended"


@in_world
async def test_what_cannot_be_suspended_keeps_the_supervisor_unless_it_is_forced(world: World) -> None:
    made = await world.create()
    world.host.fail_next("checkpoint")
    refused = await world.ask("POST", "/stop")
    assert (refused.status, refused.json["code"]) == (500, "engine_failed")
    assert made["sandbox_id"] in refused.json["message"]
    world.host.fail_next("checkpoint")
    assert (await world.ask("POST", "/stop?force=1")).json["stopping"]
    await world.stopping.asked()
    assert world.machine_of(made["sandbox_id"]).alive


@in_world
async def test_suspend_all_tells_what_failed_and_goes_on(world: World) -> None:
    first, second = await world.create(), await world.create()
    world.host.fail_next("checkpoint")
    told = (await world.ask("POST", "/suspend-all")).json
    assert list(told["failed"]) == [first["sandbox_id"]]
    assert told["suspended"] == [second["sandbox_id"]]


@in_world
async def test_a_sandbox_is_not_lost_for_want_of_descriptors(world: World) -> None:
    made = await world.create()
    await world.crash()
    lacking = iter([OSError(errno.EMFILE, "Too many open files")] * 2)
    adopt = world.links.adopt

    async def adopt_later(link_id: str) -> FakeLink | None:
        for error in lacking:
            raise error
        return await adopt(link_id)

    with patch.object(world.links, "adopt", adopt_later):
        await world.start()
    assert not list(lacking)
    assert (await world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json["state"] == "running"
