"""What a sandbox's log tells of its life."""

from __future__ import annotations

from tests.unit.supervisor.harness import Harness, with_harness


@with_harness
async def test_the_log_tells_every_change_in_order(harness: Harness) -> None:
    made = await harness.create(name="one")
    for step in ("pause", "wake", "suspend", "wake"):
        assert (await harness.ask("POST", f"/v1/sandboxes/one/{step}")).status == 200
    assert (await harness.ask("POST", "/v1/sandboxes/one/snapshots", {"name": "s1"})).status == 200
    back = await harness.ask("POST", "/v1/sandboxes/one/rollback", {"snapshot": "s1"})
    assert back.status == 200
    harness.machine_of(made["sandbox_id"]).crash()
    await harness.until(lambda: harness.system.inventory.sandbox("one").row.state == "crashed")
    assert (await harness.ask("POST", "/v1/sandboxes/one/wake")).status == 200
    page = (await harness.ask("GET", "/v1/sandboxes/one/logs")).json
    told = [line.partition(" sandbox ")[2] for line in page["text"].splitlines()]
    assert told == [
        "created from image base",
        "paused",
        "resumed",
        "suspended",
        "woken",
        "snapshot s1 created",
        f"rolled back to snapshot {back.json['snapshot_id']}",
        "crashed: its processes ended unexpectedly",
        "booted from its disk; what was in its memory since is lost",
    ]
    assert (await harness.ask("GET", f"/v1/sandboxes/one/logs?offset={page['offset']}")).json["text"] == ""
