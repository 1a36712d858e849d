"""Snapshots that nobody asks for: when they are made, when not, and which of them stay."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from atoll.errors import InUseError, NoSpaceError
from atoll.supervisor.integrity.checksums import CheckpointChecksums
from atoll.supervisor.monitors.snapshot_due import (
    ActivityReading,
    SnapshotDue,
    has_grown,
    has_worked,
    may_have_worked,
)
from atoll.supervisor.state.sandbox import Sandbox
from tests.unit.supervisor.harness import Harness, with_harness

EVERY_S = 300
WANTED: dict[str, object] = {"snapshot_every_s": EVERY_S}


async def made_with(harness: Harness, **lifecycle: object) -> Sandbox:
    made = await harness.create(lifecycle={**WANTED, **lifecycle})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.automatic_snapshots.look()
    return sandbox


async def passed(harness: Harness, sandbox: Sandbox, *, worked: bool) -> None:
    """Let the time of one snapshot pass, in which the sandbox has done something or nothing."""
    machine = harness.machine_of(sandbox.sandbox_id)
    harness.boot_s += EVERY_S + 1
    if worked and machine.cpu_s is not None:
        machine.cpu_s += EVERY_S
    await harness.system.automatic_snapshots.look()
    await harness.until(lambda: not harness.system.tasks.busy)


def ids(harness: Harness) -> list[str]:
    return [row.snapshot_id for row in harness.system.inventory.snapshots()]


def test_a_guest_that_waits_has_not_worked_and_one_that_ran_a_command_has() -> None:
    before = ActivityReading(100.0, 5.0, 64 << 20, 0)
    assert not has_worked(before, ActivityReading(110.0, 5.04, 64 << 20, 0))
    assert has_worked(before, ActivityReading(101.0, 5.1, 64 << 20, 0))
    assert has_worked(before, ActivityReading(101.0, None, None, 0))
    assert not may_have_worked(before, ActivityReading(101.0, 5.2, None, 0))
    assert may_have_worked(before, ActivityReading(101.0, 6.0, None, 0))
    assert not has_grown(before, ActivityReading(110.0, 5.0, 66 << 20, 0))
    assert has_grown(before, ActivityReading(110.0, 5.0, 99 << 20, 0))
    assert has_grown(before, ActivityReading(110.0, 5.0, 64 << 20, 1))


def test_failures_make_the_pauses_longer_and_a_success_ends_that() -> None:
    turns = SnapshotDue(0.0)
    assert [turns.is_due(300, now_s) for now_s in (299, 300)] == [False, True]
    pauses = []
    for _ in range(9):
        turns.failed(300, 1000)
        pauses.append(next(after for after in range(0, 10_000, 100) if turns.is_due(300, 1000 + after)))
    assert pauses == [600, 1200, 2400, *[3600] * 6]
    turns.made(5000, took_s=60)
    assert [turns.is_due(300, now_s) for now_s in (5301, 5600)] == [False, True]
    turns.failed(300, 6000)
    assert turns.is_due(300, 6600)


@with_harness
async def test_what_changes_gets_snapshots_and_what_is_idle_gets_none(harness: Harness) -> None:
    sandbox = await made_with(harness)
    plain = await harness.create()
    for _ in range(3):
        await passed(harness, sandbox, worked=False)
    assert ids(harness) == []
    harness.machine_of(sandbox.sandbox_id).memory = "worked"
    await passed(harness, sandbox, worked=True)
    (row,) = harness.system.inventory.snapshots()
    assert (row.automatic, row.sandbox_id, sandbox.row.snapshot_id) == (
        True,
        sandbox.sandbox_id,
        row.snapshot_id,
    )
    assert row.info().automatic
    await passed(harness, sandbox, worked=False)
    harness.machine_of(sandbox.sandbox_id).cpu_s = 1e6
    await harness.system.automatic_snapshots.look()  # not yet its time
    assert ids(harness) == [row.snapshot_id]
    assert (await harness.ask("GET", f"/v1/sandboxes/{plain['sandbox_id']}")).json["snapshot_failed"] is None
    log = (await harness.ask("GET", f"/v1/sandboxes/{sandbox.sandbox_id}/logs")).json["text"]
    assert f"automatic snapshot {row.snapshot_id} created" in log


@with_harness
async def test_it_is_as_old_as_its_state_however_long_its_files_take(harness: Harness) -> None:
    sandbox = await made_with(harness)

    def write_slowly(_: object, checkpoint: object) -> None:
        harness.now_s += 60

    began_s = harness.now_s
    with patch.object(CheckpointChecksums, "write", write_slowly):
        await passed(harness, sandbox, worked=True)
    (row,) = harness.system.inventory.snapshots()
    assert harness.now_s > began_s + 60
    assert began_s <= row.created_at < began_s + 1


@with_harness
async def test_what_a_client_did_before_the_first_look_counts(harness: Harness) -> None:
    made = await harness.create(lifecycle=WANTED)
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    sandbox.dialled = True
    await harness.system.automatic_snapshots.look()
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 1


@with_harness
async def test_a_disk_that_grew_is_a_change_even_if_the_processor_shows_none(harness: Harness) -> None:
    sandbox = await made_with(harness)
    harness.layers.changed_bytes = 4096
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 1


@with_harness
async def test_old_ones_go_and_those_of_users_and_those_that_are_used_stay(harness: Harness) -> None:
    sandbox = await made_with(harness, snapshots_kept=1)
    one = f"/v1/sandboxes/{sandbox.sandbox_id}"
    await passed(harness, sandbox, worked=True)
    (used,) = ids(harness)
    copy = await harness.create(from_snapshot=used)
    own = (await harness.ask("POST", f"{one}/snapshots", {"name": "own"})).json["snapshot_id"]
    await harness.system.automatic_snapshots.look()
    for _ in range(3):
        await passed(harness, sandbox, worked=True)
    # All within an hour of the calendar, so only the newest stays.
    newest = sandbox.row.snapshot_id
    assert ids(harness) == [used, own, newest]
    parents = {row.snapshot_id: row.parent_id for row in harness.system.inventory.snapshots()}
    assert parents == {used: None, own: used, newest: own}
    with pytest.raises(InUseError):
        await harness.system.snapshots.remove(used)
    assert (await harness.ask("DELETE", f"/v1/sandboxes/{copy['sandbox_id']}")).status == 204
    await harness.system.automatic_snapshots.tidy()
    assert ids(harness) == [own, newest]
    assert {row.parent_id for row in harness.system.inventory.snapshots()} == {None, own}
    # A kill takes what was made by itself along, and nothing that a user made.
    assert (await harness.ask("DELETE", one)).status == 204
    await harness.system.automatic_snapshots.tidy()
    assert ids(harness) == [own]


@with_harness
async def test_one_that_the_sandbox_was_rolled_back_to_stays(harness: Harness) -> None:
    sandbox = await made_with(harness, snapshots_kept=1)
    await passed(harness, sandbox, worked=True)
    (first,) = ids(harness)
    await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/snapshots", {"name": "own"})
    assert (
        await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/rollback", {"snapshot": first})
    ).status == 200
    await harness.system.automatic_snapshots.look()
    await harness.system.automatic_snapshots.tidy()
    assert first in ids(harness)
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 2


@with_harness
async def test_without_room_nothing_is_made_and_the_info_and_the_log_say_so_until_there_is(
    harness: Harness,
) -> None:
    sandbox = await made_with(harness)
    one = f"/v1/sandboxes/{sandbox.sandbox_id}"
    with patch("atoll.supervisor.lifecycle.snapshot._SPARE_BYTES", 1 << 60):
        await passed(harness, sandbox, worked=True)
        failed = (await harness.ask("GET", one)).json["snapshot_failed"]
        assert "MiB of the disk are free" in failed["reason"]
        assert "no automatic snapshot: " in (await harness.ask("GET", f"{one}/logs")).json["text"]
        assert (sandbox.row.state, ids(harness)) == ("running", [])
        await passed(harness, sandbox, worked=True)  # its pause has become longer
    harness.boot_s += 10 * EVERY_S
    await harness.system.automatic_snapshots.look()
    await harness.until(lambda: not harness.system.tasks.busy)
    assert len(ids(harness)) == 1
    assert (await harness.ask("GET", one)).json["snapshot_failed"] is None


@with_harness
async def test_a_failure_that_cannot_be_stored_is_told_all_the_same(harness: Harness) -> None:
    sandbox = await made_with(harness)
    harness.host.fail_next("checkpoint", NoSpaceError("the disk is full"))
    with patch.object(harness.system.database, "put", side_effect=NoSpaceError("full")):
        await passed(harness, sandbox, worked=True)
    assert sandbox.row.snapshot_failed is not None
    assert sandbox.row.state == "running"


@with_harness
async def test_an_operation_of_a_user_comes_first(harness: Harness) -> None:
    sandbox = await made_with(harness)
    async with sandbox.lock:
        await passed(harness, sandbox, worked=True)
        assert await harness.system.snapshots.make_if_free(sandbox, needs_bytes=0) is None
    assert ids(harness) == []
    await harness.system.automatic_snapshots.look()
    await harness.until(lambda: len(ids(harness)) == 1)
    await harness.asleep({"sandbox_id": sandbox.sandbox_id})
    assert await harness.system.snapshots.make_if_free(sandbox, needs_bytes=0) is None


@with_harness
async def test_what_happened_before_a_sleep_or_under_an_earlier_supervisor_counts(harness: Harness) -> None:
    sandbox = await made_with(harness)
    one = f"/v1/sandboxes/{sandbox.sandbox_id}"
    await harness.asleep({"sandbox_id": sandbox.sandbox_id})
    await harness.ask("POST", f"{one}/wake")
    await harness.system.automatic_snapshots.look()
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 1
    await harness.crash()
    await harness.start()
    harness.agents.deaf = False
    sandbox = harness.system.inventory.sandbox(sandbox.sandbox_id)
    await harness.system.automatic_snapshots.look()
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 2
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 2


@with_harness
async def test_what_is_done_while_a_snapshot_is_written_is_in_one_more(harness: Harness) -> None:
    sandbox = await made_with(harness)
    machine = harness.machine_of(sandbox.sandbox_id)
    written = harness.host.hold("written")
    harness.boot_s += EVERY_S + 1
    machine.cpu_s = 99.0
    await harness.system.automatic_snapshots.look()
    await harness.until(lambda: "written" in harness.host.methods(machine.machine_id))
    machine.cpu_s = 999.0
    await harness.system.automatic_snapshots.look()
    written.set()
    await harness.until(lambda: not harness.system.tasks.busy)
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 2
    await passed(harness, sandbox, worked=False)
    assert len(ids(harness)) == 2


@with_harness
async def test_a_crash_in_the_middle_is_no_failure_to_be_told(harness: Harness) -> None:
    sandbox = await made_with(harness)
    harness.machine_of(sandbox.sandbox_id).doomed = True
    harness.agents.deaf = True
    await passed(harness, sandbox, worked=True)
    await harness.until(lambda: sandbox.row.state == "crashed")
    assert (sandbox.row.snapshot_failed, ids(harness)) == (None, [])
    harness.agents.deaf = False
