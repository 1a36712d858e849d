"""What sleeps wakes with the engine that made it, and `atoll upgrade --check` tells which that is."""

from __future__ import annotations

from typing import Any

from tests.unit.supervisor.harness import Harness, with_harness


async def report(harness: Harness) -> Any:
    answer = await harness.ask("GET", "/v1/upgrade")
    assert answer.status == 200, answer.body
    return answer.json


@with_harness
async def test_after_an_upgrade_what_sleeps_is_told_and_wakes_with_the_engine_that_made_it(
    harness: Harness,
) -> None:
    made = await harness.create(name="old")
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {"name": "kept"})
    await harness.asleep(made)
    assert (await report(harness))["others"] == []
    await harness.aclose()
    (harness.home.path / "runsc").write_text("a newer one")
    await harness.start()
    new = await harness.create(name="new")
    await harness.asleep(new)
    others = (await report(harness))["others"]
    assert [(use["kind"], use["name"], use["kept"]) for use in others] == [
        ("sandbox", "old", True),
        ("snapshot", "kept", True),
    ]
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")).status == 200


@with_harness
async def test_an_engine_that_is_lost_is_told_before_anything_has_to_wake(harness: Harness) -> None:
    made = await harness.create(name="old")
    await harness.asleep(made)
    await harness.aclose()
    (harness.home.path / "runsc").write_text("a newer one")
    await harness.start()
    row = harness.system.inventory.sandbox(made["sandbox_id"]).row
    (harness.home.bin / row.versions.engine / "runsc").unlink()
    [use] = (await report(harness))["others"]
    assert (use["name"], use["kept"]) == ("old", False)
