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
from tests.unit.supervisor.world import World, in_world


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
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        world.machine_of(made["sandbox_id"]).memory = "remembered"
        sandbox, system = world.system.registry.sandbox(made["sandbox_id"]), world.system
        dies = pytest.raises(Died) if step == "change" else contextlib.nullcontext()
        ended = world.host.hold("kill")
        with (
            patch("atoll.supervisor.lifecycle.suspend.Suspends._undo", _nothing),
            patch("atoll.supervisor.state.operation_log.Operations._forget", _nothing),
            patch.object(system.registry, "change", _die) if step == "change" else contextlib.nullcontext(),
            patch("atoll.supervisor.machines.running_machine.RunningMachines.write_checksums", _nothing),
            dies,
        ):
            await system.suspends.suspend(sandbox)
        await world.crash()
        ended.set()
        await world.start()
        world.agents.deaf = False
        state = (await world.ask("GET", one)).json["state"]
        assert state == ("running" if step == "change" else "suspended")
        checksums = world.home.sandboxes / made["sandbox_id"] / "checkpoint" / "seal.json"
        assert checksums.exists() == (step == "end")
        await world.ask("POST", f"{one}/wake")
        machine = world.machine_of(made["sandbox_id"])
        assert (machine.memory, machine.paused) == ("remembered", False)
        assert "in the middle of: suspend" in (await world.ask("GET", f"{one}/logs")).json["text"]

    in_world(lived)()


@pytest.mark.parametrize(
    ("failing", "asked"), [("prepare", "suspend"), ("prepare", "snapshots"), ("written", "snapshots")]
)
def test_a_full_disk_before_or_after_the_guest_stands_still_leaves_it_running(
    failing: str, asked: str
) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        world.host.fail_next(failing, NoSpaceError("full"))
        assert (await world.ask("POST", f"{one}/{asked}", {})).json["code"] == NoSpaceError.code
        assert not world.machine_of(made["sandbox_id"]).paused
        assert not list((world.home.sandboxes / made["sandbox_id"]).glob("checkpoint*"))
        assert not list(world.home.snapshots.iterdir())
        assert (await world.ask("POST", f"{one}/{asked}", {})).status < 300

    in_world(lived)()


@in_world
async def test_a_suspend_that_finds_the_disk_full_leaves_the_sandbox_running(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    machine = world.machine_of(made["sandbox_id"])
    world.host.fail_next("checkpoint", NoSpaceError("full"))
    assert (await world.ask("POST", f"{one}/suspend")).status == 507
    assert (await world.ask("GET", one)).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]) is machine
    assert not machine.paused
    assert not list((world.home.sandboxes / made["sandbox_id"]).glob("checkpoint*"))


@in_world
async def test_a_guest_that_cannot_be_thawed_after_a_snapshot_crashes_instead_of_standing_still(
    world: World,
) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    for _ in range(3):
        world.host.fail_next("resume")
    world.agents.deaf = True
    await world.ask("POST", f"{one}/snapshots", {})
    world.agents.deaf = False
    assert (await world.ask("GET", one)).json["state"] == "crashed"
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"


@in_world
async def test_an_agent_that_is_killed_while_its_guest_stands_still_leaves_no_snapshot(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.machine_of(made["sandbox_id"]).doomed = True
    world.agents.deaf = True
    answer = await world.ask("POST", f"{one}/snapshots", {})
    assert (answer.status, answer.json["code"]) == (410, "sandbox_crashed")
    assert (await world.ask("GET", "/v1/snapshots")).json == []
    assert not list(world.home.snapshots.glob("*"))
    assert not world.layers.ids()


@in_world
async def test_a_guest_that_is_too_busy_to_answer_after_its_snapshot_has_one_all_the_same(
    world: World,
) -> None:
    made = await world.create()
    world.agents.deaf = True
    snapshot = await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    assert snapshot.status == 200
    assert [row["snapshot_id"] for row in (await world.ask("GET", "/v1/snapshots")).json] == [
        snapshot.json["snapshot_id"]
    ]


@in_world
async def test_a_machine_that_does_not_end_keeps_its_disk_from_a_second_one(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    world.machine_of(made["sandbox_id"]).crash()
    await world.until(lambda: world.system.registry.sandbox(made["sandbox_id"]).row.state == "crashed")
    world.host.fail_next("kill", EngineError("it is still stuck"))
    refused = await world.ask("POST", f"{one}/wake")
    assert (refused.status, refused.json["message"]) == (500, "it is still stuck")
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"


@in_world
async def test_a_kill_works_although_nothing_can_be_ended_or_erased(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    with patch("atoll.supervisor.lifecycle.kill.erase", side_effect=OSError("no")):
        assert (await world.ask("DELETE", one)).status == 204
    assert (await world.ask("GET", one)).status == 404
    assert (await world.ask("DELETE", "/v1/leftovers")).status == 200
    assert list(world.home.sandboxes.iterdir()) == []


async def _cut_a_waking_short(world: World, made: dict[str, str]) -> None:
    """Have the supervisor die when the guest runs already, and no row says so."""
    await world.asleep(made)
    system = world.system
    with (
        patch("atoll.supervisor.machines.running_machine.RunningMachines.end", _nothing),
        patch("atoll.supervisor.lifecycle.restore.Restores._put_back", _nothing),
        patch("atoll.supervisor.state.operation_log.Operations._forget", _nothing),
        patch("atoll.supervisor.lifecycle.attachment.Attachment.take_up", _die),
        pytest.raises(Died),
    ):
        await system.wakes.use(system.registry.sandbox(made["sandbox_id"]))
    await world.crash()


def _write_as_the_guest(world: World, made: dict[str, str]) -> None:
    (world.home.sandboxes / made["sandbox_id"] / "d1" / "upper" / "written").touch()


@pytest.mark.parametrize("lives", [True, False])
def test_a_waking_that_was_cut_short_is_finished_or_given_up_by_what_is_on_the_disk(lives: bool) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        world.machine_of(made["sandbox_id"]).memory = "remembered"
        await _cut_a_waking_short(world, made)
        if not lives:
            _write_as_the_guest(world, made)
            for machine in world.host.machines.values():
                machine.crash()
        await world.start()
        told = (await world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json
        if lives:
            assert (told["state"], told["reason"]) == ("running", None)
            assert world.machine_of(made["sandbox_id"]).memory == "remembered"
        else:
            assert told["state"] == "crashed"
            assert "one instant" in told["reason"]

    in_world(lived)()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("method", ["started", "adopt"])
def test_an_unexpected_error_in_recovery_costs_no_memory_that_is_on_the_disk(
    method: str, written: bool
) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        world.machine_of(made["sandbox_id"]).memory = "remembered"
        await _cut_a_waking_short(world, made)
        if written:
            _write_as_the_guest(world, made)
        world.host.fail_next(method, RuntimeError("nobody has foreseen this"))
        await world.start()
        told = (await world.ask("GET", one)).json
        if written:
            # Its guest has run beyond its memory.
            assert told["state"] == "crashed"
            assert "nobody has foreseen this" in told["reason"]
        else:
            assert told["state"] == "suspended"
            assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
            assert world.machine_of(made["sandbox_id"]).memory == "remembered"

    in_world(lived)()


@in_world
async def test_an_error_while_a_sleeping_sandbox_is_looked_at_leaves_it_asleep(world: World) -> None:
    made = await world.create()
    world.machine_of(made["sandbox_id"]).memory = "remembered"
    await world.asleep(made)
    await world.crash()
    with patch(
        "atoll.supervisor.recovery.reconcile.Reconcile._finish_instant", side_effect=RuntimeError("odd")
    ):
        await world.start()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await world.ask("GET", one)).json["state"] == "suspended"
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]).memory == "remembered"


@in_world
async def test_a_machine_whose_adoption_fails_halfway_is_owned_by_nobody(world: World) -> None:
    made = await world.create()
    await world.crash()
    with patch("atoll.supervisor.recovery.adoption.thaw_or_end", side_effect=RuntimeError("odd")):
        await world.start()
    assert (await world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json["state"] == "crashed"
    assert world.system.running_machines.machine_ids() == world.system.prestarted.ids()


@pytest.mark.parametrize(("on_crash", "memory"), [("reboot", "booted"), ("rollback", "then"), ("stop", None)])
def test_the_next_use_after_a_crash_does_what_on_crash_says(on_crash: str, memory: str | None) -> None:
    async def lived(world: World) -> None:
        made = await world.create(on_crash=on_crash)
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        world.machine_of(made["sandbox_id"]).memory = "then"
        assert (await world.ask("POST", f"{one}/snapshots", {})).status == 200
        world.machine_of(made["sandbox_id"]).memory = "now"
        world.machine_of(made["sandbox_id"]).crash()
        await world.until(lambda: world.system.registry.sandbox(made["sandbox_id"]).row.state == "crashed")
        woken = await world.ask("POST", f"{one}/wake")
        if memory is None:
            assert (woken.status, woken.json["code"]) == (410, "sandbox_crashed")
            assert (await world.ask("POST", f"{one}/resume")).json["state"] == "running"
        else:
            assert woken.json["state"] == "running"
            assert world.machine_of(made["sandbox_id"]).memory == memory
        told = (await world.ask("GET", one)).json["recovered"]
        assert told["how"] == ("snapshot" if on_crash == "rollback" else "disk")
        assert "unexpectedly" in told["reason"]
        assert "what was in its memory since is lost" in (await world.ask("GET", f"{one}/logs")).json["text"]
        (copy,) = (await world.ask("POST", f"{one}/fork", {"count": 1})).json
        assert copy["recovered"] is None

    in_world(lived)()


@in_world
async def test_rollback_after_a_crash_without_a_snapshot_starts_from_the_disk(world: World) -> None:
    made = await world.create(on_crash="rollback")
    world.machine_of(made["sandbox_id"]).crash()
    await world.until(lambda: world.system.registry.sandbox(made["sandbox_id"]).row.state == "crashed")
    assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")).json["state"] == "running"


@in_world
async def test_forks_and_snapshots_keep_on_crash(world: World) -> None:
    made = await world.create(on_crash="stop")
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.ask("POST", f"{one}/snapshots", {"name": "s1"})
    (fork,) = (await world.ask("POST", f"{one}/fork", {"count": 1})).json
    copy = await world.create(from_snapshot="s1")
    assert (fork["on_crash"], copy["on_crash"]) == ("stop", "stop")


@in_world
async def test_the_newest_snapshot_is_the_one_made_last_whatever_the_clock_does(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    stamps = []
    for jump_s in (0, -5000, 9000, -20000):
        world.now_s += jump_s
        stamps.append((await world.ask("POST", f"{one}/snapshots", {})).json["created_at"])
    assert stamps == sorted(set(stamps))


@in_world
async def test_a_sandbox_whose_disk_is_gone_says_so_and_can_be_killed(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.asleep(made)
    os.rename(world.home.sandboxes / made["sandbox_id"] / "d1", world.home.path / "elsewhere")
    refused = await world.ask("POST", f"{one}/wake")
    assert refused.status == 500
    assert "is missing" in refused.json["message"]
    assert (await world.ask("DELETE", one)).status == 204


@pytest.mark.parametrize("harm", ["change", "cut", "remove"])
def test_a_damaged_memory_is_never_restored_and_the_disk_remains(harm: str) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        await world.asleep(made)
        (memory,) = (world.home.sandboxes / made["sandbox_id"] / "checkpoint").glob("memory*")
        if harm == "remove":
            memory.unlink()
        else:
            memory.write_bytes(b'"forged"' if harm == "change" else b"")
        refused = await world.ask("POST", f"{one}/wake")
        assert refused.json["code"] == "damaged"
        told = (await world.ask("GET", one)).json
        assert (told["state"], "damaged" in told["reason"]) == ("crashed", True)
        assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
        assert world.machine_of(made["sandbox_id"]).memory == "booted"

    in_world(lived)()


@in_world
async def test_a_damaged_snapshot_is_refused_and_leaves_its_sandbox_running(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    kept = (await world.ask("POST", f"{one}/snapshots", {"name": "s1"})).json
    (memory,) = (world.home.snapshots / kept["snapshot_id"] / "checkpoint").glob("memory*")
    memory.write_bytes(b'"forged"')
    assert (await world.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).json["code"] == "damaged"
    assert (await world.ask("POST", "/v1/sandboxes", {"from_snapshot": "s1"})).json["code"] == "damaged"
    assert (await world.ask("GET", one)).json["state"] == "running"
    assert len(world.host.machines) == 1


@pytest.mark.parametrize("harm", ["rubbish", "a page", "remove", "a row"])
def test_a_lost_or_damaged_database_loses_no_sandbox_and_no_snapshot(harm: str) -> None:
    async def lived(world: World) -> None:
        made = await world.create(name="one", on_crash="stop")
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        world.machine_of(made["sandbox_id"]).memory = "remembered"
        await world.ask("POST", f"{one}/snapshots", {"name": "s1"})
        await world.asleep(made)
        gone = await world.create(name="two")
        await world.ask("DELETE", f"/v1/sandboxes/{gone['sandbox_id']}")
        await world.crash()
        _harm(world.home.database, harm)
        await world.start()
        (found,) = (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"]
        assert (found["name"], found["state"], found["on_crash"]) == ("one", "suspended", "stop")
        assert [row["name"] for row in (await world.ask("GET", "/v1/snapshots")).json] == ["s1"]
        assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
        assert world.machine_of(made["sandbox_id"]).memory == "remembered"
        assert (world.home.path / "state.db.damaged").exists() == (harm in ("rubbish", "a page"))

    in_world(lived)()


@in_world
async def test_a_copy_of_a_row_that_was_still_to_be_written_at_a_kill_is_written_at_the_next_start(
    world: World,
) -> None:
    made = await world.create(name="one")
    with patch("atoll.supervisor.state.database.Database._keep_soon"):
        await world.asleep(made)
        await world.crash()
    await world.start()
    await world.crash()
    _harm(world.home.database, "remove")
    await world.start()
    (found,) = (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"]
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
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        await world.asleep(made)
        if not kept:
            world.links.open.clear()
            world.system.registry.sandbox(made["sandbox_id"]).link = None
        before = list(world.links.open)
        with patch.object(world.system.database, "put", _full):
            assert (await world.ask("POST", f"{one}/wake")).status == 507
        assert list(world.links.open) == before
        assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
        assert len(world.links.open) == 1

    in_world(lived)()


@in_world
async def test_what_has_woken_takes_the_room_that_is_kept_to_be_written_down(world: World) -> None:
    made = await world.create()
    sandbox_id, one = made["sandbox_id"], f"/v1/sandboxes/{made['sandbox_id']}"
    world.machine_of(sandbox_id).memory = "kept"
    await world.asleep(made)
    database, reserve = world.system.database, world.home.database.with_name(BALLAST)
    really = database._try

    def full(statements: list[tuple[str, list[object]]], durable: bool) -> None:
        if reserve.exists() and any("running" in values for _, values in statements):
            raise NoSpaceError("full")
        really(statements, durable)

    with patch.object(database, "_try", full):
        assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert world.machine_of(sandbox_id).memory == "kept"


@in_world
async def test_a_memory_older_than_its_disk_is_not_restored_though_the_full_disk_kept_the_crash_unwritten(
    world: World,
) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.asleep(made)
    for file in (world.home.sandboxes / made["sandbox_id"] / "checkpoint").iterdir():
        os.utime(file, (0, 0))
    with patch.object(world.system.registry, "change", _full):
        assert (await world.ask("POST", f"{one}/wake")).status == 507
    assert (await world.ask("GET", one)).json["state"] == "crashed"
    await world.crash()
    await world.start()
    assert (await world.ask("GET", one)).json["state"] == "crashed"


@in_world
async def test_limits_of_a_killed_sandbox_are_not_changed(world: World) -> None:
    made = await world.create()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    await world.system.kills.kill(sandbox)
    with pytest.raises(SandboxNotFoundError):
        await world.system.limits.change(sandbox, Limits(processes=100))
    assert await world.system.database.all(SandboxRow) == []


@in_world
async def test_a_supervisor_starts_on_a_full_disk_and_a_sandbox_that_ended_can_be_killed(
    world: World,
) -> None:
    made = await world.create()
    machine = world.machine_of(made["sandbox_id"])
    await world.crash()
    machine.crash()
    with patch("atoll.supervisor.state.registry.Registry.change", _full):
        await world.start()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await world.ask("GET", one)).json["state"] == "crashed"
    assert (await world.ask("DELETE", one)).status < 300


@pytest.mark.parametrize("step", ["checksums", "naming"])
def test_a_disk_that_the_engine_keeps_has_an_instant_at_every_moment_of_a_suspend(step: str) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        sandbox, system = world.system.registry.sandbox(made["sandbox_id"]), world.system
        await system.registry.change(sandbox, engine_disk=True)
        await world.asleep(made)
        await world.ask("POST", f"{one}/wake")
        checkpoint = world.home.sandboxes / made["sandbox_id"] / "checkpoint"
        world.machine_of(made["sandbox_id"]).memory = "newer"

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
        world.machine_of(made["sandbox_id"]).crash()
        await world.crash()
        await world.start()
        assert checkpoint.is_dir()
        assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
        memory = world.machine_of(made["sandbox_id"]).memory
        assert memory == ("newer" if step == "naming" else "booted")

    in_world(lived)()


def _dying_at(target: Path) -> contextlib.AbstractContextManager[object]:
    rename = os.rename

    def until_then(old: Path, new: Path) -> None:
        if new == target:
            raise Died
        rename(old, new)

    return patch("os.rename", until_then)


@in_world
async def test_a_memory_that_had_not_reached_the_disk_when_the_host_went_down_is_not_restored(
    world: World,
) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.asleep(made)
    checkpoint = world.home.sandboxes / made["sandbox_id"] / "checkpoint"
    (checkpoint / "seal.json").unlink()  # as while a layer is frozen below it
    (checkpoint / "boot").write_bytes(b"")
    assert (await world.ask("POST", f"{one}/wake")).json["code"] == "damaged"
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert world.machine_of(made["sandbox_id"]).memory == "booted"


@in_world
async def test_what_is_in_the_trash_is_no_leftover_at_any_moment(world: World) -> None:
    stale = world.home.sandboxes / "stale"
    stale.mkdir()
    erasing = world.system._storage.trash.take(stale)
    (aside,) = world.home.snapshots.iterdir()
    assert world.system.registry.pins.has(aside.name)
    assert erasing is not None
    await erasing
    assert not world.system.registry.pins.has(aside.name)


@in_world
async def test_the_room_that_a_kill_takes_from_a_full_disk_is_kept_again_when_there_is_plenty(
    world: World,
) -> None:
    reserve = world.home.database.with_name(BALLAST)
    reserve.unlink()
    made = await world.create()
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    assert reserve.stat().st_size > 1 << 20
