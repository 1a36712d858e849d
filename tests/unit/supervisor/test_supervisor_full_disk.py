"""What a full disk stops, and what it does not."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from atoll.errors import NoSpaceError
from atoll.supervisor.state.reserve import BALLAST
from tests.unit.supervisor.harness import Harness, with_harness


async def _full(*_: object, **__: object) -> None:
    raise NoSpaceError("full")


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


@pytest.mark.parametrize("kept", [True, False])
def test_a_waking_that_finds_the_disk_full_leaves_no_link_behind_and_loses_none(kept: bool) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        (link,) = harness.links.open.values()
        link.is_held = kept
        await harness.asleep(made)
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
    with patch.object(harness.system.inventory, "change", _full):
        assert (await harness.ask("POST", f"{one}/wake")).status == 507
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", one)).json["state"] == "crashed"


@with_harness
async def test_a_supervisor_starts_on_a_full_disk_and_a_sandbox_that_ended_can_be_killed(
    harness: Harness,
) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])
    await harness.crash()
    machine.crash()
    with patch("atoll.supervisor.state.inventory.Inventory.change", _full):
        await harness.start()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    assert (await harness.ask("DELETE", one)).status < 300


@with_harness
async def test_the_room_that_a_kill_takes_from_a_full_disk_is_kept_again_when_there_is_plenty(
    harness: Harness,
) -> None:
    reserve = harness.home.database.with_name(BALLAST)
    reserve.unlink()
    made = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})
    assert reserve.stat().st_size > 1 << 20
