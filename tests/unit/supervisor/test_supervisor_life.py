"""The life cycle over the API."""

from __future__ import annotations

import asyncio
from typing import Any

from atoll.errors import EngineError, SandboxNotFoundError
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.references import digests_in_use
from tests.unit.supervisor.world import DIGEST, World, in_world, in_world_of


@in_world
async def test_a_created_sandbox_runs_and_can_be_found_by_name(world: World) -> None:
    made = await world.create(name="one", env={"A": "b"}, metadata={"team": "x"})
    assert made["state"] == "running"
    assert (made["user"], made["cwd"], made["image"]) == ("user", "/home/user", "base")
    found = await world.ask("GET", "/v1/sandboxes/one")
    assert found.json["sandbox_id"] == made["sandbox_id"]


@in_world
async def test_the_guest_is_told_its_name_and_the_environment_of_image_and_sandbox(world: World) -> None:
    await world.create(name="one", env={"A": "b"})
    told = world.agents.inits[-1]
    assert told.hostname == "one"
    assert told.env == {"LANG": "C", "A": "b"}
    assert told.nameserver == "192.0.2.53"
    assert told.machine_id and len(told.machine_id) == 32


@in_world
async def test_a_name_can_be_had_once(world: World) -> None:
    await world.create(name="one")
    again = await world.ask("POST", "/v1/sandboxes", {"name": "one"})
    assert again.status == 409
    assert again.json["code"] == "name_taken"
    assert again.json["hint"]


@in_world
async def test_a_killed_sandboxs_name_is_free_again(world: World) -> None:
    made = await world.create(name="one")
    assert (await world.ask("DELETE", "/v1/sandboxes/one")).status == 204
    assert (await world.create(name="one"))["sandbox_id"] != made["sandbox_id"]


@in_world
async def test_a_failed_create_leaves_nothing(world: World) -> None:
    world.host.fail_next("start")
    assert (await world.ask("POST", "/v1/sandboxes", {"name": "one"})).status == 500
    assert world.links.open == {}
    assert list(world.home.sandboxes.iterdir()) == []
    assert (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []
    await world.create(name="one")


@in_world
async def test_a_create_whose_agent_refuses_leaves_nothing(world: World) -> None:
    world.agents.fail_after = 0
    assert (await world.ask("POST", "/v1/sandboxes", {})).status == 500
    assert world.host.machines == {}
    assert world.links.open == {}


@in_world
async def test_pause_and_resume_change_the_state(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await world.ask("POST", f"{one}/pause")).json["state"] == "paused"
    assert (await world.ask("POST", f"{one}/pause")).json["state"] == "paused"
    assert world.machine_of(made["sandbox_id"]).paused
    assert (await world.ask("POST", f"{one}/resume")).json["state"] == "running"
    assert not world.machine_of(made["sandbox_id"]).paused


@in_world
async def test_nothing_that_is_done_to_a_sleeping_sandbox_changes_when_it_went_to_sleep(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert made["stopped_at"] is None
    paused = (await world.ask("POST", f"{one}/pause")).json
    assert made["started_at"] < paused["stopped_at"] == paused["changed_at"]
    assert (await world.ask("POST", f"{one}/suspend")).status == 200
    assert (await world.ask("POST", f"{one}/snapshots", {})).status == 200
    asleep = (await world.ask("GET", one)).json
    assert asleep["stopped_at"] == paused["stopped_at"] < asleep["changed_at"]
    await world.ask("POST", f"{one}/resume")
    again = (await world.ask("POST", f"{one}/pause")).json
    assert again["stopped_at"] > paused["stopped_at"]


@in_world
async def test_a_failed_pause_changes_nothing_and_a_failed_resume_is_tried_again(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.host.fail_next("pause")
    assert (await world.ask("POST", f"{one}/pause")).status == 500
    assert (await world.ask("GET", one)).json["state"] == "running"
    await world.ask("POST", f"{one}/pause")
    world.host.fail_next("resume")
    world.agents.deaf = True
    assert (await world.ask("POST", f"{one}/resume")).json["state"] == "running"
    assert not world.machine_of(made["sandbox_id"]).paused


@in_world
async def test_a_pause_ends_the_connections_that_clients_hold(world: World) -> None:
    made = await world.create()
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    (link,) = world.links.open.values()
    assert "end_dialled" in link.calls


@in_world
async def test_traffic_wakes_a_paused_sandbox(world: World) -> None:
    made = await world.create()
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    (link,) = world.links.open.values()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])

    def woken() -> bool:
        link.received += 1000
        return sandbox.row.state == "running"

    await world.until(woken)


@in_world
async def test_what_a_guest_gets_while_it_is_thawed_for_a_moment_wakes_it_not(world: World) -> None:
    made = await world.create()
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    (link,) = world.links.open.values()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    await asyncio.sleep(0.15)  # the first watch has looked
    assert sandbox.running is not None
    link.received += 1000
    world.system._steps.traffic.watch(sandbox, sandbox.running)
    await asyncio.sleep(0.3)
    assert sandbox.row.state == "paused"
    assert len(world.system._steps.traffic._watched) == 1


@in_world
async def test_suspend_and_wake_keep_memory_disk_and_link(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.machine_of(made["sandbox_id"]).memory = "remembered"
    (link,) = world.links.open.values()
    assert (await world.ask("POST", f"{one}/suspend")).json["state"] == "suspended"
    assert world.host.machines == {}
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]).memory == "remembered"
    assert list(world.links.open.values()) == [link]
    assert link.calls[-2:] == ["prepare", "release"]
    assert world.agents.inits[-1].generation == 2


@in_world
async def test_a_checkpoint_is_gone_once_its_sandbox_runs_again(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    checkpoint = world.home.sandboxes / made["sandbox_id"] / "checkpoint"
    await world.ask("POST", f"{one}/suspend")
    assert checkpoint.is_dir()
    await world.ask("POST", f"{one}/wake")
    assert not checkpoint.exists()


@in_world
async def test_a_failed_suspend_leaves_the_sandbox_running(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.host.fail_next("checkpoint")
    assert (await world.ask("POST", f"{one}/suspend")).status == 500
    assert (await world.ask("GET", one)).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]).alive
    assert (await world.ask("POST", f"{one}/suspend")).json["state"] == "suspended"


@in_world
async def test_a_failed_wake_leaves_the_sandbox_suspended_with_its_memory(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.machine_of(made["sandbox_id"]).memory = "remembered"
    await world.ask("POST", f"{one}/suspend")
    world.host.fail_next("start", EngineError("not now"))
    assert (await world.ask("POST", f"{one}/wake")).status == 500
    assert (await world.ask("GET", one)).json["state"] == "suspended"
    await world.ask("POST", f"{one}/wake")
    assert world.machine_of(made["sandbox_id"]).memory == "remembered"


@in_world
async def test_a_wake_without_its_old_link_resets_connections(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.ask("POST", f"{one}/suspend")
    world.system.registry.sandbox(made["sandbox_id"]).link = None
    world.links.open.clear()
    await world.ask("POST", f"{one}/wake")
    (link,) = world.links.open.values()
    assert "reset 1" in link.calls


@in_world
async def test_kill_works_in_every_state_and_leaves_nothing(world: World) -> None:
    for state in ("run", "pause", "suspend", "crash"):
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        if state == "crash":
            world.machine_of(made["sandbox_id"]).crash()
        elif state != "run":
            await world.ask("POST", f"{one}/{state}")
        assert (await world.ask("DELETE", one)).status == 204, state
        assert (await world.ask("GET", one)).status == 404
    assert world.host.machines == {}
    assert world.links.open == {}
    assert list(world.home.sandboxes.iterdir()) == []


@in_world
async def test_a_kill_ends_a_hanging_operation(world: World) -> None:
    made = await world.create()
    released = world.host.hold("checkpoint")
    hanging = world.system.tasks.spawn(
        world.system.suspends.suspend(world.system.registry.sandbox(made["sandbox_id"]))
    )
    await world.until(lambda: world.system.registry.sandbox(made["sandbox_id"]).lock.locked())
    killing = world.system.tasks.spawn(
        world.system.kills.kill(world.system.registry.sandbox(made["sandbox_id"]))
    )
    await world.until(lambda: not world.host.machines)
    released.set()
    await killing
    await world.until(hanging.done)
    assert isinstance(hanging.exception(), SandboxNotFoundError)  # it is no crash
    assert (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []


@in_world
async def test_a_crash_is_told_at_once_and_the_next_use_boots_the_same_disk(world: World) -> None:
    made = await world.create(name="one")
    sandbox = world.system.registry.sandbox("one")
    world.machine_of(made["sandbox_id"]).crash()
    await world.until(lambda: sandbox.row.state == "crashed")
    told = (await world.ask("GET", "/v1/sandboxes/one")).json
    assert told["state"] == "crashed"
    assert told["reason"]
    assert (await world.ask("POST", "/v1/sandboxes/one/pause")).json["code"] == "wrong_state"
    assert (await world.ask("POST", "/v1/sandboxes/one/wake")).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]).memory == "booted"
    assert sandbox.row.disk == "d1"
    assert (await world.ask("GET", "/v1/sandboxes/one")).json["reason"] is None


@in_world
async def test_an_operation_under_way_when_the_machine_dies_fails_as_a_crash(world: World) -> None:
    made = await world.create()
    world.host.hold("checkpoint")
    asking = world.system.tasks.spawn(world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {}))
    await world.until(lambda: any(call.method == "checkpoint" for call in world.host.calls))
    world.machine_of(made["sandbox_id"]).crash()
    answer = await asking
    assert (answer.status, answer.json["code"]) == (410, "sandbox_crashed")
    assert list(world.home.snapshots.iterdir()) == []
    assert world.layers.ids() == []


@in_world_of(Settings(pool_size=1))
async def test_the_second_create_takes_a_warm_machine(world: World) -> None:
    await world.create()
    await world.until(lambda: world.system.pool.ids())
    (ready,) = world.system.pool.ids()
    starts = len([call for call in world.host.calls if call.method == "start"])
    made = await world.create(name="two", network="none")
    assert made["sandbox_id"] == ready
    assert len([call for call in world.host.calls if call.method == "start"]) == starts
    assert world.agents.inits[-1].hostname == "two"
    running: Any = world.system.registry.sandbox("two").running
    assert running.link.policy == "none"
    await world.until(lambda: world.system.pool.ids())


@in_world_of(Settings(pool_size=1))
async def test_a_warm_machine_that_died_is_not_handed_out(world: World) -> None:
    await world.create()
    await world.until(lambda: world.system.pool.ids())
    (ready,) = world.system.pool.ids()
    for machine in list(world.host.machines.values()):
        machine.crash()
    made = await world.create()
    assert made["sandbox_id"] != ready
    assert world.machine_of(made["sandbox_id"]).alive


@in_world_of(Settings(pool_size=1))
async def test_limits_of_its_own_need_a_machine_of_its_own(world: World) -> None:
    await world.create()
    await world.until(lambda: world.system.pool.ids())
    made = await world.create(limits={"memory_mib": 128})
    assert world.machine_of(made["sandbox_id"]).plan.limits.memory_mib == 128


@in_world
async def test_an_image_that_is_missing_is_built_with_progress(world: World) -> None:
    world.images.have = False
    answer = await world.ask("POST", "/v1/sandboxes", {}, {"accept": "application/x-ndjson"})
    lines = answer.body.decode().splitlines()
    assert '"building"' in lines[0]
    assert '"result"' in lines[-1]
    assert world.images.builds == 1


@in_world
async def test_an_image_that_is_used_while_its_removal_waits_for_a_pull_stays(world: World) -> None:
    world.images.unlocked.clear()
    removing = asyncio.create_task(world.ask("DELETE", "/v1/images/base"))
    await asyncio.sleep(0)
    await world.create()
    world.images.unlocked.set()
    assert (await removing).json["code"] == "in_use"
    assert world.images.have


@in_world
async def test_an_image_in_use_is_not_removed(world: World) -> None:
    made = await world.create()
    assert (await world.ask("DELETE", "/v1/images/base")).json["code"] == "in_use"
    await world.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    assert (await world.ask("DELETE", "/v1/images/base")).status == 204
    assert DIGEST not in digests_in_use(world.system.registry)
