"""What is left when the supervisor, an engine or a disk fails in the middle of an operation."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.errors import EngineError, SandboxNotFoundError
from atoll.supervisor.state.rows import SandboxRow
from atoll.types import Limits
from tests.unit.supervisor.failures import Died, die, nothing
from tests.unit.supervisor.harness import Harness, with_harness


@pytest.mark.parametrize("step", ["change", "end"])
def test_a_supervisor_that_dies_in_a_suspend_leaves_it_running_or_asleep_with_its_memory(step: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        harness.machine_of(made["sandbox_id"]).memory = "remembered"
        sandbox, system = harness.system.inventory.sandbox(made["sandbox_id"]), harness.system
        dies = pytest.raises(Died) if step == "change" else contextlib.nullcontext()
        ended = harness.host.hold("kill")
        with (
            patch("atoll.supervisor.lifecycle.suspend.Suspends._undo", nothing),
            patch("atoll.supervisor.state.operation_log.Operations._forget", nothing),
            patch.object(system.inventory, "change", die) if step == "change" else contextlib.nullcontext(),
            patch("atoll.supervisor.machines.running_machines.RunningMachines.write_checksums", nothing),
            dies,
        ):
            await system.suspends.suspend(sandbox)
        await harness.crash()
        ended.set()
        await harness.start()
        harness.agents.deaf = False
        state = (await harness.ask("GET", one)).json["state"]
        assert state == ("running" if step == "change" else "suspended")
        checksums = harness.home.sandboxes / made["sandbox_id"] / "checkpoint" / "checksums.json"
        assert checksums.exists() == (step == "end")
        await harness.ask("POST", f"{one}/wake")
        machine = harness.machine_of(made["sandbox_id"])
        assert (machine.memory, machine.paused) == ("remembered", False)
        assert "during: suspend" in (await harness.ask("GET", f"{one}/logs")).json["text"]

    with_harness(lived)()


@with_harness
async def test_a_guest_that_cannot_be_thawed_after_a_snapshot_crashes_instead_of_standing_still(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    for _ in range(3):
        harness.host.fail_next("resume")
    harness.agents.deaf = True
    await harness.ask("POST", f"{one}/snapshots", {})
    harness.agents.deaf = False
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"


@with_harness
async def test_an_agent_that_is_killed_while_its_guest_stands_still_leaves_no_snapshot(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.machine_of(made["sandbox_id"]).doomed = True
    harness.agents.deaf = True
    answer = await harness.ask("POST", f"{one}/snapshots", {})
    assert (answer.status, answer.json["code"]) == (410, "sandbox_crashed")
    assert (await harness.ask("GET", "/v1/snapshots")).json == []
    assert not list(harness.home.snapshots.glob("*"))
    assert not harness.layers.ids()


@with_harness
async def test_a_guest_that_is_too_busy_to_answer_after_its_snapshot_has_one_all_the_same(
    harness: Harness,
) -> None:
    made = await harness.create()
    harness.agents.deaf = True
    snapshot = await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    assert snapshot.status == 200
    assert [row["snapshot_id"] for row in (await harness.ask("GET", "/v1/snapshots")).json] == [
        snapshot.json["snapshot_id"]
    ]


@with_harness
async def test_a_machine_that_does_not_end_keeps_its_disk_from_a_second_one(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    harness.machine_of(made["sandbox_id"]).crash()
    await harness.until(lambda: harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "crashed")
    harness.host.fail_next("kill", EngineError("it is still stuck"))
    refused = await harness.ask("POST", f"{one}/wake")
    assert (refused.status, refused.json["message"]) == (500, "it is still stuck")
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"


@with_harness
async def test_a_kill_works_although_nothing_can_be_ended_or_erased(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    with patch("atoll.supervisor.storage.trash.mounts_below", return_value=["its disk"]):
        assert (await harness.ask("DELETE", one)).status == 204
    assert (await harness.ask("GET", one)).status == 404
    assert (await harness.ask("DELETE", "/v1/leftovers")).status == 200
    assert list(harness.home.sandboxes.iterdir()) == []


@pytest.mark.parametrize(("on_crash", "memory"), [("reboot", "booted"), ("rollback", "then"), ("stop", None)])
def test_the_next_use_after_a_crash_does_what_on_crash_says(on_crash: str, memory: str | None) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create(on_crash=on_crash)
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        harness.machine_of(made["sandbox_id"]).memory = "then"
        assert (await harness.ask("POST", f"{one}/snapshots", {})).status == 200
        harness.machine_of(made["sandbox_id"]).memory = "now"
        harness.machine_of(made["sandbox_id"]).crash()
        await harness.until(
            lambda: harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "crashed"
        )
        woken = await harness.ask("POST", f"{one}/wake")
        if memory is None:
            assert (woken.status, woken.json["code"]) == (410, "sandbox_crashed")
            assert (await harness.ask("POST", f"{one}/resume")).json["state"] == "running"
        else:
            assert woken.json["state"] == "running"
            assert harness.machine_of(made["sandbox_id"]).memory == memory
        told = (await harness.ask("GET", one)).json["recovered"]
        assert told["how"] == ("snapshot" if on_crash == "rollback" else "disk")
        assert "unexpectedly" in told["reason"]
        assert (
            "what was in its memory since is lost" in (await harness.ask("GET", f"{one}/logs")).json["text"]
        )
        (copy,) = (await harness.ask("POST", f"{one}/fork", {"count": 1})).json
        assert copy["recovered"] is None

    with_harness(lived)()


@with_harness
async def test_rollback_after_a_crash_without_a_snapshot_starts_from_the_disk(harness: Harness) -> None:
    made = await harness.create(on_crash="rollback")
    harness.machine_of(made["sandbox_id"]).crash()
    await harness.until(lambda: harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "crashed")
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")).json["state"] == "running"


@with_harness
async def test_forks_and_snapshots_keep_on_crash(harness: Harness) -> None:
    made = await harness.create(on_crash="stop")
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})
    (fork,) = (await harness.ask("POST", f"{one}/fork", {"count": 1})).json
    copy = await harness.create(from_snapshot="s1")
    assert (fork["on_crash"], copy["on_crash"]) == ("stop", "stop")


@with_harness
async def test_the_newest_snapshot_is_the_one_made_last_whatever_the_clock_does(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    stamps = []
    for jump_s in (0, -5000, 9000, -20000):
        harness.now_s += jump_s
        stamps.append((await harness.ask("POST", f"{one}/snapshots", {})).json["created_at"])
    assert stamps == sorted(set(stamps))


@with_harness
async def test_a_sandbox_whose_disk_is_gone_says_so_and_can_be_killed(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    os.rename(harness.home.sandboxes / made["sandbox_id"] / "d1", harness.home.path / "elsewhere")
    refused = await harness.ask("POST", f"{one}/wake")
    assert refused.status == 500
    assert "is missing" in refused.json["message"]
    assert (await harness.ask("DELETE", one)).status == 204


@pytest.mark.parametrize("harm", ["change", "cut", "remove"])
def test_a_damaged_memory_is_never_restored_and_the_disk_remains(harm: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        await harness.asleep(made)
        (memory,) = (harness.home.sandboxes / made["sandbox_id"] / "checkpoint").glob("memory*")
        if harm == "remove":
            memory.unlink()
        else:
            memory.write_bytes(b'"forged"' if harm == "change" else b"")
        refused = await harness.ask("POST", f"{one}/wake")
        assert refused.json["code"] == "damaged"
        told = (await harness.ask("GET", one)).json
        assert (told["state"], "damaged" in told["reason"]) == ("crashed", True)
        assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
        assert harness.machine_of(made["sandbox_id"]).memory == "booted"

    with_harness(lived)()


@with_harness
async def test_a_damaged_snapshot_is_refused_and_leaves_its_sandbox_running(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    kept = (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).json
    (memory,) = (harness.home.snapshots / kept["snapshot_id"] / "checkpoint").glob("memory*")
    memory.write_bytes(b'"forged"')
    assert (await harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).json["code"] == "damaged"
    assert (await harness.ask("POST", "/v1/sandboxes", {"from_snapshot": "s1"})).json["code"] == "damaged"
    assert (await harness.ask("GET", one)).json["state"] == "running"
    assert len(harness.host.machines) == 1


@with_harness
async def test_limits_of_a_killed_sandbox_are_not_changed(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.kills.kill(sandbox)
    with pytest.raises(SandboxNotFoundError):
        await harness.system.limits.change(sandbox, Limits(processes=100))
    assert await harness.system.database.all(SandboxRow) == []


@pytest.mark.parametrize("step", ["checksums", "naming"])
def test_a_disk_that_the_engine_keeps_has_an_instant_at_every_moment_of_a_suspend(step: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        sandbox, system = harness.system.inventory.sandbox(made["sandbox_id"]), harness.system
        await system.inventory.change(sandbox, engine_disk=True)
        await harness.asleep(made)
        await harness.ask("POST", f"{one}/wake")
        checkpoint = harness.home.sandboxes / made["sandbox_id"] / "checkpoint"
        harness.machine_of(made["sandbox_id"]).memory = "newer"

        def die(*_: object, **__: object) -> None:
            raise Died

        with (
            patch("atoll.supervisor.lifecycle.suspend.Suspends._undo", nothing),
            patch("atoll.supervisor.integrity.checksums.CheckpointChecksums.write", die)
            if step == "checksums"
            else _dying_at(checkpoint),
            pytest.raises(Died),
        ):
            await system.suspends.suspend(sandbox)
        harness.machine_of(made["sandbox_id"]).crash()
        await harness.crash()
        await harness.start()
        assert checkpoint.is_dir()
        assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
        memory = harness.machine_of(made["sandbox_id"]).memory
        assert memory == ("newer" if step == "naming" else "booted")

    with_harness(lived)()


def _dying_at(target: Path) -> contextlib.AbstractContextManager[object]:
    rename = os.rename

    def until_then(old: Path, new: Path) -> None:
        if new == target:
            raise Died
        rename(old, new)

    return patch("os.rename", until_then)


@with_harness
async def test_what_is_in_the_trash_is_no_leftover_at_any_moment(harness: Harness) -> None:
    stale = harness.home.sandboxes / "stale"
    stale.mkdir()
    erasing = harness.system._storage.trash.take(stale)
    (aside,) = harness.home.snapshots.iterdir()
    assert harness.system.inventory.pins.has(aside.name)
    assert erasing is not None
    await erasing
    assert not harness.system.inventory.pins.has(aside.name)
