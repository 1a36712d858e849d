"""The life cycle over the API."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from atoll.errors import EngineError, SandboxNotFoundError
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.references import digests_in_use
from atoll.supervisor.storage import trash
from tests.unit.supervisor.fakes import DIGEST
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of


@with_harness
async def test_a_created_sandbox_runs_and_can_be_found_by_name(harness: Harness) -> None:
    made = await harness.create(name="one", env={"A": "b"}, metadata={"team": "x"})
    assert made["state"] == "running"
    assert (made["user"], made["cwd"], made["image"]) == ("user", "/home/user", "base")
    found = await harness.ask("GET", "/v1/sandboxes/one")
    assert found.json["sandbox_id"] == made["sandbox_id"]


@with_harness
async def test_the_guest_is_told_its_name_and_the_environment_of_image_and_sandbox(harness: Harness) -> None:
    await harness.create(name="one", env={"A": "b"})
    told = harness.agents.inits[-1]
    assert told.hostname == "one"
    assert told.env == {"LANG": "C", "A": "b"}
    assert told.nameserver == "192.0.2.53"
    assert told.machine_id and len(told.machine_id) == 32


@with_harness
async def test_a_name_can_be_had_once(harness: Harness) -> None:
    await harness.create(name="one")
    again = await harness.ask("POST", "/v1/sandboxes", {"name": "one"})
    assert again.status == 409
    assert again.json["code"] == "name_taken"
    assert again.json["hint"]


@with_harness
async def test_a_killed_sandboxs_name_is_free_again(harness: Harness) -> None:
    made = await harness.create(name="one")
    assert (await harness.ask("DELETE", "/v1/sandboxes/one")).status == 204
    assert (await harness.create(name="one"))["sandbox_id"] != made["sandbox_id"]


@with_harness
async def test_a_failed_create_leaves_nothing(harness: Harness) -> None:
    harness.host.fail_next("start")
    assert (await harness.ask("POST", "/v1/sandboxes", {"name": "one"})).status == 500
    assert harness.links.open == {}
    assert list(harness.home.sandboxes.iterdir()) == []
    assert (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []
    await harness.create(name="one")


@with_harness
async def test_a_create_whose_agent_refuses_leaves_nothing(harness: Harness) -> None:
    harness.agents.fail_after = 0
    assert (await harness.ask("POST", "/v1/sandboxes", {})).status == 500
    assert harness.host.machines == {}
    assert harness.links.open == {}


@with_harness
async def test_pause_and_resume_change_the_state(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("POST", f"{one}/pause")).json["state"] == "paused"
    assert (await harness.ask("POST", f"{one}/pause")).json["state"] == "paused"
    assert harness.machine_of(made["sandbox_id"]).paused
    assert (await harness.ask("POST", f"{one}/resume")).json["state"] == "running"
    assert not harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_nothing_that_is_done_to_a_sleeping_sandbox_changes_when_it_went_to_sleep(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert made["stopped_at"] is None
    paused = (await harness.ask("POST", f"{one}/pause")).json
    assert made["started_at"] < paused["stopped_at"] == paused["changed_at"]
    assert (await harness.ask("POST", f"{one}/suspend")).status == 200
    assert (await harness.ask("POST", f"{one}/snapshots", {})).status == 200
    asleep = (await harness.ask("GET", one)).json
    assert asleep["stopped_at"] == paused["stopped_at"] < asleep["changed_at"]
    await harness.ask("POST", f"{one}/resume")
    again = (await harness.ask("POST", f"{one}/pause")).json
    assert again["stopped_at"] > paused["stopped_at"]


@with_harness
async def test_a_failed_pause_changes_nothing_and_a_failed_resume_is_tried_again(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("pause")
    assert (await harness.ask("POST", f"{one}/pause")).status == 500
    assert (await harness.ask("GET", one)).json["state"] == "running"
    await harness.ask("POST", f"{one}/pause")
    harness.host.fail_next("resume")
    harness.agents.deaf = True
    assert (await harness.ask("POST", f"{one}/resume")).json["state"] == "running"
    assert not harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_a_pause_ends_the_connections_that_clients_hold(harness: Harness) -> None:
    made = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    (link,) = harness.links.open.values()
    assert "end_dialled" in link.calls


@with_harness
async def test_data_wakes_a_sandbox_that_is_paused_because_it_was_idle(harness: Harness) -> None:
    sandbox = await harness.pause_as_idle(await harness.create())
    (link,) = harness.links.open.values()

    def woken() -> bool:
        link.received += 1
        return sandbox.row.state == "running"

    await harness.until(woken)


@with_harness
async def test_a_pause_of_a_client_holds_whatever_comes(harness: Harness) -> None:
    sandbox = await harness.pause_as_idle(await harness.create())
    (link,) = harness.links.open.values()
    assert (await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/pause")).status == 200
    for _ in range(3):
        link.received += 1000
        await asyncio.sleep(0.1)
    assert sandbox.row.state == "paused"
    assert not harness.system._steps.paused_wakes._watched


@with_harness
async def test_what_a_guest_gets_while_it_is_thawed_for_a_moment_wakes_it_not(harness: Harness) -> None:
    sandbox = await harness.pause_as_idle(await harness.create())
    (link,) = harness.links.open.values()
    await asyncio.sleep(0.15)  # the first watch has looked
    assert sandbox.running is not None
    link.received += 1000
    harness.system._steps.paused_wakes.watch(sandbox, sandbox.running)
    await asyncio.sleep(0.3)
    assert sandbox.row.state == "paused"
    assert len(harness.system._steps.paused_wakes._watched) == 1


@with_harness
async def test_suspend_and_wake_keep_memory_disk_and_a_link_that_holds_a_connection(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.machine_of(made["sandbox_id"]).memory = "remembered"
    (link,) = harness.links.open.values()
    link.is_held = True
    assert (await harness.ask("POST", f"{one}/suspend")).json["state"] == "suspended"
    assert harness.host.machines == {}
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).memory == "remembered"
    assert list(harness.links.open.values()) == [link]
    assert link.calls[-2:] == ["prepare", "release"]
    assert harness.agents.inits[-1].generation == 2


@with_harness
async def test_a_checkpoint_is_gone_once_its_sandbox_runs_again(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    checkpoint = harness.home.sandboxes / made["sandbox_id"] / "checkpoint"
    await harness.ask("POST", f"{one}/suspend")
    assert checkpoint.is_dir()
    await harness.ask("POST", f"{one}/wake")
    assert not checkpoint.exists()


@with_harness
async def test_a_failed_suspend_leaves_the_sandbox_running(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("checkpoint")
    assert (await harness.ask("POST", f"{one}/suspend")).status == 500
    assert (await harness.ask("GET", one)).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).alive
    assert (await harness.ask("POST", f"{one}/suspend")).json["state"] == "suspended"


@with_harness
async def test_a_failed_wake_leaves_the_sandbox_suspended_with_its_memory(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.machine_of(made["sandbox_id"]).memory = "remembered"
    await harness.ask("POST", f"{one}/suspend")
    harness.host.fail_next("start", EngineError("not now"))
    assert (await harness.ask("POST", f"{one}/wake")).status == 500
    assert (await harness.ask("GET", one)).json["state"] == "suspended"
    await harness.ask("POST", f"{one}/wake")
    assert harness.machine_of(made["sandbox_id"]).memory == "remembered"


@with_harness
async def test_a_sleeper_without_connections_has_no_link_and_wakes_on_a_new_one(harness: Harness) -> None:
    made = await harness.create(network="none")
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    (link,) = harness.links.open.values()
    link.guest.known = {"198.18.0.1": "example.com"}
    await harness.asleep(made)
    assert (harness.links.open, sandbox.link, sandbox.row.link_id) == ({}, None, None)
    await harness.ask("POST", f"{one}/wake")
    (new,) = harness.links.open.values()
    assert new is not link
    assert new.guest.known == {"198.18.0.1": "example.com"}
    assert new.policy == "none"
    assert "reset 1" in new.calls
    assert sandbox.row.link_id == new.link_id


@with_harness
async def test_a_link_is_let_go_once_the_last_connection_of_its_sleeper_has_ended(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    (link,) = harness.links.open.values()
    link.is_held = True
    await harness.asleep(made)
    await harness.system.sleeping_links.look()
    assert sandbox.row.link_id == link.link_id
    link.is_held = False
    async with sandbox.lock:
        await harness.system.sleeping_links.look()
    assert sandbox.row.link_id == link.link_id, "an operation may need it"
    await harness.system.sleeping_links.look()
    assert harness.links.open == {}
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.link_id is None


@with_harness
async def test_a_link_that_cannot_be_removed_does_not_keep_a_sleeper_from_waking(harness: Harness) -> None:
    made = await harness.create()
    (link,) = harness.links.open.values()
    with patch.object(link, "holds_nothing", side_effect=OSError("it is gone")):
        await harness.asleep(made)
    assert list(harness.links.open.values()) == [link]
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")).status == 200
    assert list(harness.links.open.values()) == [link]


@with_harness
async def test_kill_works_in_every_state_and_leaves_nothing(harness: Harness) -> None:
    for state in ("run", "pause", "suspend", "crash"):
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        if state == "crash":
            harness.machine_of(made["sandbox_id"]).crash()
        elif state != "run":
            await harness.ask("POST", f"{one}/{state}")
        assert (await harness.ask("DELETE", one)).status == 204, state
        assert (await harness.ask("GET", one)).status == 404
    assert harness.host.machines == {}
    assert harness.links.open == {}
    assert list(harness.home.sandboxes.iterdir()) == []


@with_harness
async def test_a_kill_ends_a_hanging_operation(harness: Harness) -> None:
    made = await harness.create()
    released = harness.host.hold("checkpoint")
    hanging = harness.system.tasks.spawn(
        harness.system.suspends.suspend(harness.system.inventory.sandbox(made["sandbox_id"]))
    )
    await harness.until(lambda: harness.system.inventory.sandbox(made["sandbox_id"]).lock.locked())
    killing = harness.system.tasks.spawn(
        harness.system.kills.kill(harness.system.inventory.sandbox(made["sandbox_id"]))
    )
    await harness.until(lambda: not harness.host.machines)
    released.set()
    await killing
    await harness.until(hanging.done)
    assert isinstance(hanging.exception(), SandboxNotFoundError)  # it is no crash
    assert (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []


@with_harness
async def test_a_crash_is_told_at_once_and_the_next_use_boots_the_same_disk(harness: Harness) -> None:
    made = await harness.create(name="one")
    sandbox = harness.system.inventory.sandbox("one")
    harness.machine_of(made["sandbox_id"]).crash()
    await harness.until(lambda: sandbox.row.state == "crashed")
    told = (await harness.ask("GET", "/v1/sandboxes/one")).json
    assert told["state"] == "crashed"
    assert told["reason"]
    assert (await harness.ask("POST", "/v1/sandboxes/one/pause")).json["code"] == "wrong_state"
    assert (await harness.ask("POST", "/v1/sandboxes/one/wake")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).memory == "booted"
    assert sandbox.row.disk == "d1"
    assert (await harness.ask("GET", "/v1/sandboxes/one")).json["reason"] is None


@with_harness
async def test_an_operation_under_way_when_the_machine_dies_fails_as_a_crash(harness: Harness) -> None:
    made = await harness.create()
    harness.host.hold("checkpoint")
    asking = harness.system.tasks.spawn(
        harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    )
    await harness.until(lambda: any(call.method == "checkpoint" for call in harness.host.calls))
    harness.machine_of(made["sandbox_id"]).crash()
    answer = await asking
    assert (answer.status, answer.json["code"]) == (410, "sandbox_crashed")
    assert list(harness.home.snapshots.iterdir()) == []
    assert harness.layers.ids() == []


@with_harness_of(Settings(pool_size=1))
async def test_the_second_create_takes_a_warm_machine(harness: Harness) -> None:
    await harness.create()
    await harness.until(lambda: harness.system.pool.ids())
    (ready,) = harness.system.pool.ids()
    starts = len([call for call in harness.host.calls if call.method == "start"])
    made = await harness.create(name="two", network="none")
    assert made["sandbox_id"] == ready
    assert len([call for call in harness.host.calls if call.method == "start"]) == starts
    assert harness.agents.inits[-1].hostname == "two"
    running: Any = harness.system.inventory.sandbox("two").running
    assert running.link.policy == "none"
    await harness.until(lambda: harness.system.pool.ids())


@with_harness_of(Settings(pool_size=1))
async def test_a_warm_machine_that_died_is_not_handed_out(harness: Harness) -> None:
    await harness.create()
    await harness.until(lambda: harness.system.pool.ids())
    (ready,) = harness.system.pool.ids()
    for machine in list(harness.host.machines.values()):
        machine.crash()
    made = await harness.create()
    assert made["sandbox_id"] != ready
    assert harness.machine_of(made["sandbox_id"]).alive


@with_harness_of(Settings(pool_size=1))
async def test_limits_of_its_own_need_a_machine_of_its_own(harness: Harness) -> None:
    await harness.create()
    await harness.until(lambda: harness.system.pool.ids())
    made = await harness.create(limits={"memory_mib": 128})
    assert harness.machine_of(made["sandbox_id"]).plan.limits.memory_mib == 128


@with_harness
async def test_an_image_that_is_missing_is_built_with_progress(harness: Harness) -> None:
    harness.images.have = False
    answer = await harness.ask("POST", "/v1/sandboxes", {}, {"accept": "application/x-ndjson"})
    lines = answer.body.decode().splitlines()
    assert '"building"' in lines[0]
    assert '"result"' in lines[-1]
    assert harness.images.builds == 1


@with_harness
async def test_an_image_that_is_used_while_its_removal_waits_for_a_pull_stays(harness: Harness) -> None:
    harness.images.unlocked.clear()
    removing = asyncio.create_task(harness.ask("DELETE", "/v1/images/base"))
    await asyncio.sleep(0)
    await harness.create()
    harness.images.unlocked.set()
    assert (await removing).json["code"] == "in_use"
    assert harness.images.have


@with_harness
async def test_an_image_in_use_is_not_removed(harness: Harness) -> None:
    made = await harness.create()
    assert (await harness.ask("DELETE", "/v1/images/base")).json["code"] == "in_use"
    await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    (harness.home.images / DIGEST / "rootfs").mkdir(parents=True)
    with patch.object(trash, "remove_tree") as erasing:
        assert (await harness.ask("DELETE", "/v1/images/base")).status == 204
        assert not (harness.home.images / DIGEST).exists()
        await harness.system.trash.settle()
        assert erasing.call_count == 1, "its files are erased by the trash"
    assert DIGEST not in digests_in_use(harness.system.inventory)
