"""What a new supervisor makes of what an earlier one left in the middle of something."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.unit.supervisor.failures import Died, die, nothing
from tests.unit.supervisor.harness import Harness, with_harness


async def _cut_a_waking_short(harness: Harness, made: dict[str, str]) -> None:
    """Have the supervisor die when the guest runs already, and no row says so."""
    await harness.asleep(made)
    system = harness.system
    with (
        patch("atoll.supervisor.machines.running_machines.RunningMachines.end", nothing),
        patch("atoll.supervisor.lifecycle.restore.Restores._put_back", nothing),
        patch("atoll.supervisor.state.operation_log.Operations._forget", nothing),
        patch("atoll.supervisor.lifecycle.attachment.Attachment.take_up", die),
        pytest.raises(Died),
    ):
        await system.wakes.use(system.inventory.sandbox(made["sandbox_id"]))
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


@with_harness
async def test_a_memory_that_had_not_reached_the_disk_when_the_host_went_down_is_not_restored(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    checkpoint = harness.home.sandboxes / made["sandbox_id"] / "checkpoint"
    (checkpoint / "checksums.json").unlink()  # as while a layer is frozen below it
    (checkpoint / "boot").write_bytes(b"")
    assert (await harness.ask("POST", f"{one}/wake")).json["code"] == "damaged"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).memory == "booted"
