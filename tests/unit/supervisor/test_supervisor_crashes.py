"""What is left when the supervisor, an engine or a disk fails in the middle of an operation."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.errors import EngineError, NoSpaceError, SandboxNotFoundError
from atoll.supervisor.state.reserve import BALLAST
from atoll.supervisor.state.rows import SandboxRow
from atoll.types import Limits
from tests.unit.supervisor.harness import Harness, with_harness


class Died(BaseException):
    """The supervisor ends here, as by kill -9."""


async def _die(*_: object, **__: object) -> None:
    raise Died


async def _full(*_: object, **__: object) -> None:
    raise NoSpaceError("full")


async def _nothing(*_: object, **__: object) -> None:
    pass


@pytest.mark.parametrize("step", ["change", "end"])
def test_a_supervisor_that_dies_in_a_suspend_leaves_it_running_or_asleep_with_its_memory(step: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        harness.machine_of(made["sandbox_id"]).memory = "remembered"
        sandbox, system = harness.system.registry.sandbox(made["sandbox_id"]), harness.system
        dies = pytest.raises(Died) if step == "change" else contextlib.nullcontext()
        ended = harness.host.hold("kill")
        with (
            patch("atoll.supervisor.lifecycle.suspend.Suspends._undo", _nothing),
            patch("atoll.supervisor.state.operation_log.Operations._forget", _nothing),
            patch.object(system.registry, "change", _die) if step == "change" else contextlib.nullcontext(),
            patch("atoll.supervisor.machines.running_machines.RunningMachines.write_checksums", _nothing),
            dies,
        ):
            await system.suspends.suspend(sandbox)
        await harness.crash()
        ended.set()
        await harness.start()
        harness.agents.deaf = False
        state = (await harness.ask("GET", one)).json["state"]
        assert state == ("running" if step == "change" else "suspended")
        checksums = harness.home.sandboxes / made["sandbox_id"] / "checkpoint" / "seal.json"
        assert checksums.exists() == (step == "end")
        await harness.ask("POST", f"{one}/wake")
        machine = harness.machine_of(made["sandbox_id"])
        assert (machine.memory, machine.paused) == ("remembered", False)
        assert "during: suspend" in (await harness.ask("GET", f"{one}/logs")).json["text"]

    with_harness(lived)()


@pytest.mark.parametrize(
    ("failing", "asked"), [("prepare", "suspend"), ("prepare", "snapshots"), ("written", "snapshots")]
)
def test_a_full_disk_before_or_after_the_guest_stands_still_leaves_it_running(
    failing: str, asked: str
) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        harness.host.fail_next(failing, NoSpaceError("full"))
        assert (await harness.ask("POST", f"{one}/{asked}", {})).json["code"] == NoSpaceError.code
        assert not harness.machine_of(made["sandbox_id"]).paused
        assert not list((harness.home.sandboxes / made["sandbox_id"]).glob("checkpoint*"))
        assert not list(harness.home.snapshots.iterdir())
        assert (await harness.ask("POST", f"{one}/{asked}", {})).status < 300

    with_harness(lived)()


@with_harness
async def test_a_suspend_that_finds_the_disk_full_leaves_the_sandbox_running(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    machine = harness.machine_of(made["sandbox_id"])
    harness.host.fail_next("checkpoint", NoSpaceError("full"))
    assert (await harness.ask("POST", f"{one}/suspend")).status == 507
    assert (await harness.ask("GET", one)).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]) is machine
    assert not machine.paused
    assert not list((harness.home.sandboxes / made["sandbox_id"]).glob("checkpoint*"))


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
    await harness.until(lambda: harness.system.registry.sandbox(made["sandbox_id"]).row.state == "crashed")
    harness.host.fail_next("kill", EngineError("it is still stuck"))
    refused = await harness.ask("POST", f"{one}/wake")
    assert (refused.status, refused.json["message"]) == (500, "it is still stuck")
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"


@with_harness
async def test_a_kill_works_although_nothing_can_be_ended_or_erased(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    with patch("atoll.supervisor.lifecycle.kill.erase", side_effect=OSError("no")):
        assert (await harness.ask("DELETE", one)).status == 204
    assert (await harness.ask("GET", one)).status == 404
    assert (await harness.ask("DELETE", "/v1/leftovers")).status == 200
    assert list(harness.home.sandboxes.iterdir()) == []


async def _cut_a_waking_short(harness: Harness, made: dict[str, str]) -> None:
    """Have the supervisor die when the guest runs already, and no row says so."""
    await harness.asleep(made)
    system = harness.system
    with (
        patch("atoll.supervisor.machines.running_machines.RunningMachines.end", _nothing),
        patch("atoll.supervisor.lifecycle.restore.Restores._put_back", _nothing),
        patch("atoll.supervisor.state.operation_log.Operations._forget", _nothing),
        patch("atoll.supervisor.lifecycle.attachment.Attachment.take_up", _die),
        pytest.raises(Died),
    ):
        await system.wakes.use(system.registry.sandbox(made["sandbox_id"]))
    await harness.crash()


def _write_as_the_guest(harness: Harness, made: dict[str, str]) -> None:
    (harness.home.sandboxes / made["sandbox_id"] / "d1" / "upper" / "written").touch()


@pytest.mark.parametrize("lives", [True, False])
def test_a_waking_that_was_cut_short_is_finished_or_given_up_by_what_is_on_the_disk(lives: bool) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        harness.machine_of(made["sandbox_id"]).memory = "remembered"
        await _cut_a_waking_short(harness, made)
        if not lives:
            _write_as_the_guest(harness, made)
            for machine in harness.host.machines.values():
                machine.crash()
        await harness.start()
        told = (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json
        if lives:
            assert (told["state"], told["reason"]) == ("running", None)
            assert harness.machine_of(made["sandbox_id"]).memory == "remembered"
        else:
            assert told["state"] == "crashed"
            assert "no longer match" in told["reason"]

    with_harness(lived)()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("method", ["started", "adopt"])
def test_an_unexpected_error_in_recovery_costs_no_memory_that_is_on_the_disk(
    method: str, written: bool
) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        harness.machine_of(made["sandbox_id"]).memory = "remembered"
        await _cut_a_waking_short(harness, made)
        if written:
            _write_as_the_guest(harness, made)
        harness.host.fail_next(method, RuntimeError("nobody has foreseen this"))
        await harness.start()
        told = (await harness.ask("GET", one)).json
        if written:
            # Its guest has run beyond its memory.
            assert told["state"] == "crashed"
            assert "nobody has foreseen this" in told["reason"]
        else:
            assert told["state"] == "suspended"
            assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
            assert harness.machine_of(made["sandbox_id"]).memory == "remembered"

    with_harness(lived)()


@with_harness
async def test_an_error_while_a_sleeping_sandbox_is_looked_at_leaves_it_asleep(harness: Harness) -> None:
    made = await harness.create()
    harness.machine_of(made["sandbox_id"]).memory = "remembered"
    await harness.asleep(made)
    await harness.crash()
    with patch(
        "atoll.supervisor.recovery.reconcile.Reconcile._finish_instant", side_effect=RuntimeError("odd")
    ):
        await harness.start()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("GET", one)).json["state"] == "suspended"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).memory == "remembered"


@with_harness
async def test_a_machine_whose_adoption_fails_halfway_is_owned_by_nobody(harness: Harness) -> None:
    made = await harness.create()
    await harness.crash()
    with patch("atoll.supervisor.recovery.adoption.thaw_or_end", side_effect=RuntimeError("odd")):
        await harness.start()
    assert (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json["state"] == "crashed"
    assert harness.system.running_machines.machine_ids() == harness.system.prestarted.ids()


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
            lambda: harness.system.registry.sandbox(made["sandbox_id"]).row.state == "crashed"
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
    await harness.until(lambda: harness.system.registry.sandbox(made["sandbox_id"]).row.state == "crashed")
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


@pytest.mark.parametrize("harm", ["rubbish", "a page", "remove", "a row"])
def test_a_lost_or_damaged_database_loses_no_sandbox_and_no_snapshot(harm: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create(name="one", on_crash="stop")
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        harness.machine_of(made["sandbox_id"]).memory = "remembered"
        await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})
        await harness.asleep(made)
        gone = await harness.create(name="two")
        await harness.ask("DELETE", f"/v1/sandboxes/{gone['sandbox_id']}")
        await harness.crash()
        _harm(harness.home.database, harm)
        await harness.start()
        (found,) = (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"]
        assert (found["name"], found["state"], found["on_crash"]) == ("one", "suspended", "stop")
        assert [row["name"] for row in (await harness.ask("GET", "/v1/snapshots")).json] == ["s1"]
        assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
        assert harness.machine_of(made["sandbox_id"]).memory == "remembered"
        assert (harness.home.path / "state.db.damaged").exists() == (harm in ("rubbish", "a page"))

    with_harness(lived)()


@with_harness
async def test_a_copy_of_a_row_that_was_still_to_be_written_at_a_kill_is_written_at_the_next_start(
    harness: Harness,
) -> None:
    made = await harness.create(name="one")
    with patch("atoll.supervisor.state.database.Database._keep_soon"):
        await harness.asleep(made)
        await harness.crash()
    await harness.start()
    await harness.crash()
    _harm(harness.home.database, "remove")
    await harness.start()
    (found,) = (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"]
    assert (found["name"], found["state"]) == ("one", "suspended")


def _harm(database: Path, harm: str) -> None:
    if harm == "a row":
        with contextlib.closing(sqlite3.connect(database)) as opened:
            opened.execute("UPDATE sandboxes SET state = 'running', stack = '[\"x\"]'")
            opened.commit()
        return
    for end in ("-wal", "-shm"):
        Path(f"{database}{end}").unlink(missing_ok=True)
    if harm == "remove":
        database.unlink()
    elif harm == "rubbish":
        database.write_bytes(b"rubbish" * 1000)
    else:
        content = bytearray(database.read_bytes())
        content[4096 : 3 * 4096] = os.urandom(2 * 4096)
        database.write_bytes(content)


@pytest.mark.parametrize("kept", [True, False])
def test_a_waking_that_finds_the_disk_full_leaves_no_link_behind_and_loses_none(kept: bool) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        await harness.asleep(made)
        if not kept:
            harness.links.open.clear()
            harness.system.registry.sandbox(made["sandbox_id"]).link = None
        before = list(harness.links.open)
        with patch.object(harness.system.database, "put", _full):
            assert (await harness.ask("POST", f"{one}/wake")).status == 507
        assert list(harness.links.open) == before
        assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
        assert len(harness.links.open) == 1

    with_harness(lived)()


@with_harness
async def test_what_has_woken_takes_the_room_that_is_kept_to_be_written_down(harness: Harness) -> None:
    made = await harness.create()
    sandbox_id, one = made["sandbox_id"], f"/v1/sandboxes/{made['sandbox_id']}"
    harness.machine_of(sandbox_id).memory = "kept"
    await harness.asleep(made)
    database, reserve = harness.system.database, harness.home.database.with_name(BALLAST)
    really = database._try

    def full(statements: list[tuple[str, list[object]]], durable: bool) -> None:
        if reserve.exists() and any("running" in values for _, values in statements):
            raise NoSpaceError("full")
        really(statements, durable)

    with patch.object(database, "_try", full):
        assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(sandbox_id).memory == "kept"


@with_harness
async def test_a_memory_older_than_its_disk_is_not_restored_though_the_full_disk_kept_the_crash_unwritten(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    for file in (harness.home.sandboxes / made["sandbox_id"] / "checkpoint").iterdir():
        os.utime(file, (0, 0))
    with patch.object(harness.system.registry, "change", _full):
        assert (await harness.ask("POST", f"{one}/wake")).status == 507
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", one)).json["state"] == "crashed"


@with_harness
async def test_limits_of_a_killed_sandbox_are_not_changed(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.registry.sandbox(made["sandbox_id"])
    await harness.system.kills.kill(sandbox)
    with pytest.raises(SandboxNotFoundError):
        await harness.system.limits.change(sandbox, Limits(processes=100))
    assert await harness.system.database.all(SandboxRow) == []


@with_harness
async def test_a_supervisor_starts_on_a_full_disk_and_a_sandbox_that_ended_can_be_killed(
    harness: Harness,
) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])
    await harness.crash()
    machine.crash()
    with patch("atoll.supervisor.state.registry.Registry.change", _full):
        await harness.start()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    assert (await harness.ask("DELETE", one)).status < 300


@pytest.mark.parametrize("step", ["checksums", "naming"])
def test_a_disk_that_the_engine_keeps_has_an_instant_at_every_moment_of_a_suspend(step: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        sandbox, system = harness.system.registry.sandbox(made["sandbox_id"]), harness.system
        await system.registry.change(sandbox, engine_disk=True)
        await harness.asleep(made)
        await harness.ask("POST", f"{one}/wake")
        checkpoint = harness.home.sandboxes / made["sandbox_id"] / "checkpoint"
        harness.machine_of(made["sandbox_id"]).memory = "newer"

        def die(*_: object, **__: object) -> None:
            raise Died

        with (
            patch("atoll.supervisor.lifecycle.suspend.Suspends._undo", _nothing),
            patch("atoll.supervisor.storage.checksums.CheckpointChecksums.write", die)
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
async def test_a_memory_that_had_not_reached_the_disk_when_the_host_went_down_is_not_restored(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    checkpoint = harness.home.sandboxes / made["sandbox_id"] / "checkpoint"
    (checkpoint / "seal.json").unlink()  # as while a layer is frozen below it
    (checkpoint / "boot").write_bytes(b"")
    assert (await harness.ask("POST", f"{one}/wake")).json["code"] == "damaged"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).memory == "booted"


@with_harness
async def test_what_is_in_the_trash_is_no_leftover_at_any_moment(harness: Harness) -> None:
    stale = harness.home.sandboxes / "stale"
    stale.mkdir()
    erasing = harness.system._storage.trash.take(stale)
    (aside,) = harness.home.snapshots.iterdir()
    assert harness.system.registry.pins.has(aside.name)
    assert erasing is not None
    await erasing
    assert not harness.system.registry.pins.has(aside.name)


@with_harness
async def test_the_room_that_a_kill_takes_from_a_full_disk_is_kept_again_when_there_is_plenty(
    harness: Harness,
) -> None:
    reserve = harness.home.database.with_name(BALLAST)
    reserve.unlink()
    made = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    assert reserve.stat().st_size > 1 << 20
