"""Snapshots, forks and rollback over the API."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from atoll.engines import MachineEndedError
from tests.unit.supervisor.harness import Harness, with_harness


async def _made(harness: Harness, **spec: object) -> tuple[str, str]:
    made = await harness.create(**spec)
    return made["sandbox_id"], f"/v1/sandboxes/{made['sandbox_id']}"


async def _snapshot(harness: Harness, one: str, name: str | None = None) -> Any:
    answer = await harness.ask("POST", f"{one}/snapshots", {"name": name, "comment": "why"})
    assert answer.status == 200, answer.body
    return answer.json


@with_harness
async def test_a_snapshot_lets_the_sandbox_go_on(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    snapshot = await _snapshot(harness, one, "s1")
    assert not harness.machine_of(sandbox_id).paused
    assert (snapshot["name"], snapshot["comment"], snapshot["parent_id"]) == ("s1", "why", None)
    assert (await harness.ask("GET", one)).json["snapshot_id"] == snapshot["snapshot_id"]


@with_harness
async def test_a_paused_sandbox_stays_paused_over_a_snapshot(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    await harness.ask("POST", f"{one}/pause")
    await _snapshot(harness, one)
    assert harness.machine_of(sandbox_id).paused
    assert (await harness.ask("GET", one)).json["state"] == "paused"


@with_harness
async def test_a_suspended_sandbox_is_not_woken_by_a_snapshot(harness: Harness) -> None:
    _, one = await _made(harness)
    await harness.ask("POST", f"{one}/suspend")
    snapshot = await _snapshot(harness, one)
    assert harness.host.machines == {}
    made = await harness.create(from_snapshot=snapshot["snapshot_id"])
    assert made["state"] == "running"


@with_harness
async def test_a_failed_snapshot_leaves_the_sandbox_running_and_nothing_else(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    harness.host.fail_next("checkpoint")
    assert (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 500
    assert not harness.machine_of(sandbox_id).paused
    assert list(harness.home.snapshots.iterdir()) == []
    assert harness.layers.ids() == []
    await _snapshot(harness, one, "s1")


@with_harness
async def test_the_next_snapshots_parent_is_the_one_before(harness: Harness) -> None:
    _, one = await _made(harness)
    first = await _snapshot(harness, one, "s1")
    second = await _snapshot(harness, one, "s2")
    assert second["parent_id"] == first["snapshot_id"]
    refused = await harness.ask("DELETE", "/v1/snapshots/s1")
    assert (refused.status, refused.json["code"]) == (409, "in_use")
    assert (await harness.ask("DELETE", "/v1/snapshots/s2")).status == 204
    assert (await harness.ask("DELETE", "/v1/snapshots/s1")).status == 204
    assert harness.layers.ids() == []


@with_harness
async def test_snapshot_names_are_unique_in_the_home(harness: Harness) -> None:
    _, one = await _made(harness)
    _, two = await _made(harness)
    await _snapshot(harness, one, "s1")
    assert (await harness.ask("POST", f"{two}/snapshots", {"name": "s1"})).json["code"] == "name_taken"


@with_harness
async def test_snapshots_outlive_their_sandbox(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    harness.machine_of(sandbox_id).memory = "then"
    await _snapshot(harness, one, "s1")
    await harness.ask("DELETE", one)
    listed = (await harness.ask("GET", f"/v1/snapshots?sandbox={sandbox_id}")).json
    assert [each["name"] for each in listed] == ["s1"]
    made = await harness.create(from_snapshot="s1")
    assert harness.machine_of(made["sandbox_id"]).memory == "then"


@with_harness
async def test_a_copy_gets_an_identity_of_its_own_and_forgets_connections(harness: Harness) -> None:
    _, one = await _made(harness, name="one", env={"A": "1"})
    old = harness.agents.inits[-1]
    await _snapshot(harness, one, "s1")
    made = await harness.create(from_snapshot="s1", name="two", env={"B": "2"})
    told = harness.agents.inits[-1]
    assert told.hostname == "two"
    assert told.machine_id != old.machine_id
    assert told.generation == 2
    assert told.entropy
    assert told.env == {"LANG": "C", "A": "1", "B": "2"}
    running: Any = harness.system.inventory.sandbox(made["sandbox_id"]).running
    assert running.link.calls == ["reset 1"]


@with_harness
async def test_a_snapshot_that_a_sandbox_stands_on_is_kept(harness: Harness) -> None:
    _, one = await _made(harness)
    await _snapshot(harness, one, "s1")
    made = await harness.create(from_snapshot="s1")
    refused = await harness.ask("DELETE", "/v1/snapshots/s1")
    assert refused.json["code"] == "in_use"
    assert made["sandbox_id"] in refused.json["message"]
    await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    assert (await harness.ask("DELETE", "/v1/snapshots/s1")).status == 204


@with_harness
async def test_a_fork_has_no_attribute_that_is_its_originals_own(harness: Harness) -> None:
    _, one = await _made(harness, attributes={"kind": "a", "own_request": "b"})
    (copy,) = (await harness.ask("POST", f"{one}/fork", {})).json
    assert (copy["attributes"], (await harness.ask("GET", one)).json["attributes"]) == (
        {"kind": "a"},
        {"kind": "a", "own_request": "b"},
    )


@with_harness
async def test_forks_run_beside_their_original_with_its_memory(harness: Harness) -> None:
    sandbox_id, one = await _made(harness, name="one", metadata={"a": "b"})
    harness.machine_of(sandbox_id).memory = "shared"
    copies = (await harness.ask("POST", f"{one}/fork", {"count": 3})).json
    assert len({copy["sandbox_id"] for copy in copies} | {sandbox_id}) == 4
    assert all(copy["name"] is None and copy["metadata"] == {"a": "b"} for copy in copies)
    assert all(harness.machine_of(copy["sandbox_id"]).memory == "shared" for copy in copies)
    assert harness.machine_of(sandbox_id).alive
    await harness.until(lambda: list(harness.home.snapshots.iterdir()) == [])
    assert (await harness.ask("GET", "/v1/snapshots")).json == []


@pytest.mark.parametrize("much", [False, True])
def test_only_a_layer_with_much_on_it_is_copied_before_the_guest_stands_still(much: bool) -> None:
    async def lived(harness: Harness) -> None:
        _, one = await _made(harness)
        harness.layers.has_much = much
        assert (await harness.ask("POST", f"{one}/fork", {})).status == 200
        assert harness.layers.early_copies == int(much)

    with_harness(lived)()


@with_harness
async def test_a_suspended_sandbox_is_forked_without_being_woken(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    await harness.ask("POST", f"{one}/suspend")
    (copy,) = (await harness.ask("POST", f"{one}/fork", {})).json
    assert list(harness.host.machines) == [harness.machine_of(copy["sandbox_id"]).machine_id]
    assert (await harness.ask("GET", one)).json["state"] == "suspended"
    assert (harness.home.sandboxes / sandbox_id / "checkpoint").is_dir()


@with_harness
async def test_of_forks_there_are_all_or_none(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    harness.agents.fail_after = 2
    looks = itertools.count(1)

    def mounts(_: Path) -> list[Path]:
        # The second copy that fails is still being removed when the first one's failure cancels it.
        time.sleep(1 if next(looks) == 2 else 0)
        return []

    with patch("atoll.supervisor.storage.trash.mounts_below", mounts):
        answer = await harness.ask("POST", f"{one}/fork", {"count": 4})
    assert answer.status == 500
    listed = (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"]
    assert [each["sandbox_id"] for each in listed] == [sandbox_id]
    assert list(harness.host.machines) == [harness.machine_of(sandbox_id).machine_id]
    assert len(harness.links.open) == 1
    assert [entry.name for entry in harness.home.sandboxes.iterdir()] == [sandbox_id]
    assert harness.layers.ids() == []


@with_harness
async def test_forks_have_the_names_that_were_given_in_their_order(harness: Harness) -> None:
    _, one = await _made(harness, name="one")
    copies = (await harness.ask("POST", f"{one}/fork", {"count": 2, "names": ["right", "left"]})).json
    assert [copy["name"] for copy in copies] == ["right", "left"]
    for copy in copies:
        found = (await harness.ask("GET", f"/v1/sandboxes/{copy['name']}")).json
        assert found["sandbox_id"] == copy["sandbox_id"]
    await harness.ask("DELETE", "/v1/sandboxes/left")
    assert (await harness.ask("POST", f"{one}/fork", {"names": ["left"]})).json[0]["name"] == "left"


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["new", "taken"], "name_taken"),
        (["new", "coming"], "name_taken"),
        (["same", "same"], "invalid_spec"),
        (["new", "No Name"], "invalid_spec"),
        (["new"], "invalid_spec"),
        (["a", "b", "c"], "invalid_spec"),
    ],
)
def test_a_name_that_a_fork_cannot_have_fails_all_before_anything_is_made(
    names: list[str], code: str
) -> None:
    async def lived(harness: Harness) -> None:
        sandbox_id, one = await _made(harness, name="taken")
        with harness.system.inventory.reserve_sandbox_name("coming"):
            answer = await harness.ask("POST", f"{one}/fork", {"count": 2, "names": names})
        assert answer.json["code"] == code
        assert "checkpoint" not in {call.method for call in harness.host.calls}
        listed = (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"]
        assert [each["sandbox_id"] for each in listed] == [sandbox_id]
        good = await harness.ask("POST", f"{one}/fork", {"count": 2, "names": ["new", "same"]})
        assert good.status == 200, "a refused name must be free again"

    with_harness(lived)()


@with_harness
async def test_the_names_of_forks_that_failed_are_free_again(harness: Harness) -> None:
    _, one = await _made(harness)
    harness.agents.fail_after = 1
    body = {"count": 2, "names": ["left", "right"]}
    assert (await harness.ask("POST", f"{one}/fork", body)).status == 500
    harness.agents.fail_after = None
    assert (await harness.ask("POST", f"{one}/fork", body)).status == 200


@with_harness
async def test_a_fork_of_none_or_of_too_many_is_refused(harness: Harness) -> None:
    _, one = await _made(harness)
    for count in (0, 101):
        assert (await harness.ask("POST", f"{one}/fork", {"count": count})).json["code"] == "invalid_spec"


@with_harness
async def test_a_rollback_keeps_id_and_name_and_brings_memory_and_disk_back(harness: Harness) -> None:
    sandbox_id, one = await _made(harness, name="one")
    disk = harness.home.sandboxes / sandbox_id
    (disk / "d1" / "upper" / "file").write_text("then")
    harness.machine_of(sandbox_id).memory = "then"
    await _snapshot(harness, one, "s1")
    harness.machine_of(sandbox_id).memory = "now"
    old = harness.machine_of(sandbox_id)
    answer = await harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"})
    assert (answer.json["sandbox_id"], answer.json["name"], answer.json["state"]) == (
        sandbox_id,
        "one",
        "running",
    )
    assert harness.machine_of(sandbox_id).memory == "then"
    assert not old.alive
    assert len(harness.links.open) == len(harness.host.machines) == 1
    assert not (disk / "d1").exists()
    assert (disk / "d2").is_dir()


@with_harness
async def test_a_failed_rollback_leaves_the_sandbox_as_it_was(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    await _snapshot(harness, one, "s1")
    harness.machine_of(sandbox_id).memory = "now"
    before = (await harness.ask("GET", one)).json
    for failing in ("machine", "disk", "agent"):
        if failing == "machine":
            harness.host.fail_next("start")
        elif failing == "disk":
            harness.layers.fail_next_branch = True
        else:
            harness.agents.fail_after = 0
        assert (await harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).status == 500, failing
        harness.agents.fail_after = None
        assert (await harness.ask("GET", one)).json == before, failing
        assert harness.machine_of(sandbox_id).memory == "now", failing
        assert not harness.machine_of(sandbox_id).paused, failing
        assert len(harness.links.open) == len(harness.host.machines) == 1, failing
        assert not (harness.home.sandboxes / sandbox_id / "d2").exists(), failing


@with_harness
async def test_a_suspended_or_crashed_sandbox_can_be_rolled_back(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    await _snapshot(harness, one, "s1")
    await harness.ask("POST", f"{one}/suspend")
    assert (await harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).json["state"] == "running"
    assert not (harness.home.sandboxes / sandbox_id / "checkpoint").exists()
    harness.machine_of(sandbox_id).crash()
    await harness.until(lambda: harness.system.inventory.sandbox(sandbox_id).row.state == "crashed")
    assert (await harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).json["state"] == "running"
    assert len(harness.links.open) == 1


@with_harness
async def test_a_rollback_goes_back_along_the_sandbox_s_own_line_only(harness: Harness) -> None:
    async def snap(sandbox_id: str, name: str) -> None:
        answer = await harness.ask("POST", f"/v1/sandboxes/{sandbox_id}/snapshots", {"name": name})
        assert answer.status == 200, answer.body

    async def back(sandbox_id: str, name: str) -> str:
        answer = await harness.ask("POST", f"/v1/sandboxes/{sandbox_id}/rollback", {"snapshot": name})
        return cast(str, answer.json.get("code", "done"))

    one, other = (await harness.create())["sandbox_id"], (await harness.create())["sandbox_id"]
    for name in ("first", "second"):
        await snap(one, name)
    await snap(other, "stranger")
    answer = await harness.ask("POST", f"/v1/sandboxes/{one}/fork", {"count": 1})
    (copy,) = (each["sandbox_id"] for each in answer.json)
    await snap(one, "third")
    made = (await harness.create(from_snapshot="first"))["sandbox_id"]
    wanted = {
        one: ["first", "third", "second"],
        copy: ["first"],
        made: ["first"],
    }
    for sandbox_id, names in wanted.items():
        assert [await back(sandbox_id, name) for name in names] == ["done"] * len(names)
        assert await back(sandbox_id, "stranger") == "invalid_spec"
    assert await back(copy, "third") == await back(made, "second") == "invalid_spec"


@with_harness
async def test_what_a_public_template_was_made_from_is_not_its_users_to_go_back_to(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "blue"})
    await harness.ask("POST", "/v1/teams", {"name": "red"})
    one = await harness.create(team="blue")
    for name in ("secret", "public"):
        await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": name})
    made = await harness.create(team="red", from_snapshot="public")
    path = f"/v1/sandboxes/{made['sandbox_id']}/rollback"
    assert (await harness.ask("POST", path, {"snapshot": "secret"})).json["code"] == "invalid_spec"
    assert (await harness.ask("POST", path, {"snapshot": "public"})).status == 200


@with_harness
async def test_what_starts_from_a_snapshot_of_a_closed_sandbox_is_closed_unless_it_is_to_be_open(
    harness: Harness,
) -> None:
    one = await harness.create(network="none")
    await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": "closed"})
    for asked, network in (({}, "none"), ({"network": "internet"}, "internet")):
        made = await harness.create(from_snapshot="closed", **asked)
        assert made["network"] == network
        assert cast(Any, harness.system.inventory.sandbox(made["sandbox_id"]).running).link.policy == network
    assert (await harness.create())["network"] == "internet"


@with_harness
async def test_what_was_settled_when_a_snapshot_was_made_is_not_asked_for_in_vain(harness: Harness) -> None:
    one = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": "made"})
    closed = await harness.create(trust_host_ca=False)
    await harness.ask("POST", f"/v1/sandboxes/{closed['sandbox_id']}/snapshots", {"name": "closed"})
    refused: tuple[tuple[str, dict[str, bool]], ...] = (
        ("made", {"trust_host_ca": False}),
        ("made", {"start": True}),
        ("closed", {"trust_host_ca": True}),
    )
    for name, asked in refused:
        answer = await harness.ask("POST", "/v1/sandboxes", {"from_snapshot": name, **asked})
        assert answer.json["code"] == "invalid_spec"
    for name, trusted in (("made", True), ("closed", False)):
        for given in ({}, {"start": False, "trust_host_ca": trusted}):
            made = await harness.create(from_snapshot=name, **given)
            row = harness.system.inventory.sandbox(made["sandbox_id"]).row
            assert (row.start, row.trust_host_ca) == (False, trusted)


@with_harness
async def test_a_copy_that_ends_as_soon_as_it_runs_is_told_to_have_crashed_and_leaves_nothing(
    harness: Harness,
) -> None:
    _, one = await _made(harness)
    await _snapshot(harness, one, "s1")
    there = [
        list(harness.links.open),
        list(harness.host.machines),
        len((await harness.ask("GET", "/v1/sandboxes")).json),
    ]
    for path, body in (("/v1/sandboxes", {"from_snapshot": "s1"}), (f"{one}/fork", {"count": 1})):
        harness.host.fail_next("start", MachineEndedError("it ended as soon as it had started"))
        answer = await harness.ask("POST", path, body)
        assert (answer.json["code"], "earlier snapshot" in answer.json["hint"]) == ("sandbox_crashed", True)
    assert there == [
        list(harness.links.open),
        list(harness.host.machines),
        len((await harness.ask("GET", "/v1/sandboxes")).json),
    ]


@with_harness
async def test_a_rollback_to_an_unknown_snapshot_is_not_found(harness: Harness) -> None:
    _, one = await _made(harness)
    answer = await harness.ask("POST", f"{one}/rollback", {"snapshot": "nope"})
    assert (answer.status, answer.json["code"]) == (404, "snapshot_not_found")


@with_harness
async def test_an_operation_goes_on_when_its_client_leaves(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    going_on = harness.host.hold("checkpoint")
    asking = harness.system.tasks.watch(cast(Any, harness.ask("POST", f"{one}/suspend")))
    await harness.until(lambda: any(call.method == "checkpoint" for call in harness.host.calls))
    asking.cancel()
    await harness.until(asking.done)
    going_on.set()
    await harness.until(lambda: harness.system.inventory.sandbox(sandbox_id).row.state == "suspended")
