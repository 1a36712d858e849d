"""What `atoll du` tells: each part of the disk once, with all who use it."""

from __future__ import annotations

from typing import Any

from atoll.supervisor.tenants.disk_report import Used, shares, team_shares
from tests.unit.supervisor.harness import Harness, with_harness

LAYER = 7  # what a frozen layer of the fakes has
SIZES = {"one": 1, "two": 2, "both": 4}


def used(id_: str, team: str | None, *parts: str) -> Used:
    return Used("sandbox", id_, None, team, frozenset(parts))


def test_what_several_use_is_shared_and_the_rest_is_their_own() -> None:
    found = shares([used("a", None, "one", "both"), used("b", None, "two", "both")], SIZES)
    assert [(use.id, use.own_bytes, use.shared_bytes) for use in found] == [("b", 2, 4), ("a", 1, 4)]


def test_what_only_one_team_uses_is_its_own_however_many_of_it_use_it() -> None:
    users = [used("a", "reef", "one", "both"), used("b", "reef", "both"), used("c", None, "two", "one")]
    found = {use.team: (use.own_bytes, use.shared_bytes) for use in team_shares(users, SIZES)}
    assert found == {"reef": (4, 1), None: (2, 1)}


async def report(harness: Harness, query: str = "") -> Any:
    answer = await harness.ask("GET", f"/v1/disk{query}")
    assert answer.status == 200, answer.body
    return answer.json


def by_id(report: Any) -> dict[str, tuple[str, int, int]]:
    return {use["id"]: (use["kind"], use["own_bytes"], use["shared_bytes"]) for use in report["uses"]}


@with_harness
async def test_each_thing_of_a_home_has_a_row_and_the_total_counts_each_part_once(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json
    copy = await harness.create(from_snapshot=snapshot["snapshot_id"])
    volume = (await harness.ask("POST", "/v1/volumes", {"name": "data"})).json
    (harness.home.volumes / volume["volume_id"] / "data" / "big").write_bytes(b"x" * (1 << 20))
    told = await report(harness)
    rows = by_id(told)
    assert rows[made["sandbox_id"]] == ("sandbox", harness.layers.changed_bytes, 0)
    assert rows[copy["sandbox_id"]] == ("sandbox", harness.layers.changed_bytes, LAYER)
    assert rows[snapshot["snapshot_id"]] == ("snapshot", snapshot["memory_bytes"], LAYER)
    assert rows[volume["volume_id"]][1] >= 1 << 20
    assert {kind for kind, _, _ in rows.values()} == {"sandbox", "snapshot", "volume", "image"}
    own = sum(own for _, own, _ in rows.values())
    assert told["total_bytes"] == own + LAYER
    assert told["free_bytes"] < told["disk_bytes"]


@with_harness
async def test_a_layer_is_a_snapshot_s_own_once_nothing_else_stands_on_it(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json
    id_, memory = snapshot["snapshot_id"], snapshot["memory_bytes"]
    copy = await harness.create(from_snapshot=id_)
    assert by_id(await report(harness))[id_] == ("snapshot", memory, LAYER)
    await harness.ask("DELETE", f"/v1/sandboxes/{copy['sandbox_id']}")
    assert by_id(await report(harness))[id_] == ("snapshot", memory + LAYER, 0)


@with_harness
async def test_the_snapshot_of_a_build_is_counted_with_its_template(harness: Harness) -> None:
    made = await harness.create()
    answer = await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/template", {"name": "ready"})
    assert answer.status == 200, answer.body
    rows = by_id(await report(harness))
    assert "snapshot" not in {kind for kind, _, _ in rows.values()}
    assert [kind for kind, own, _ in rows.values() if own and kind == "template"] == ["template"]


@with_harness
async def test_a_team_sees_its_own_alone(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    other = await harness.create()
    snapshot = (await harness.ask("POST", f"/v1/sandboxes/{other['sandbox_id']}/snapshots", {})).json
    made = await harness.create(team="reef", from_snapshot=snapshot["snapshot_id"])
    told = await report(harness, "?team=reef")
    assert by_id(told) == {made["sandbox_id"]: ("sandbox", harness.layers.changed_bytes, 0)}
    assert told["total_bytes"] == harness.layers.changed_bytes
    assert told["free_bytes"] is told["leftover_bytes"] is told["disk_bytes"] is None
    assert [use["team"] for use in told["teams"]] == ["reef"]
    everything = await report(harness)
    assert {use["team"] for use in everything["teams"]} == {None, "reef"}
    assert (await harness.ask("GET", "/v1/disk?team=none")).status == 404


@with_harness
async def test_what_a_crash_left_is_told_and_is_no_part_of_the_total(harness: Harness) -> None:
    before = await report(harness)
    (harness.home.snapshots / "lost").mkdir()
    (harness.home.snapshots / "lost" / "memory").write_bytes(b"x" * (1 << 20))
    after = await report(harness)
    assert after["leftover_bytes"] >= 1 << 20 > before["leftover_bytes"]
    assert after["total_bytes"] == before["total_bytes"]


@with_harness
async def test_a_memory_that_a_sleeping_sandbox_and_its_snapshot_have_is_counted_once(
    harness: Harness,
) -> None:
    made = await harness.create()
    await harness.asleep(made)
    before = await report(harness)
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json
    told = await report(harness)
    rows = by_id(told)
    shared = rows[made["sandbox_id"]][2]
    assert shared == rows[snapshot["snapshot_id"]][2] > LAYER
    own = sum(own for _, own, _ in rows.values())
    assert told["total_bytes"] == own + shared
    assert told["total_bytes"] < before["total_bytes"] + snapshot["memory_bytes"]
