"""Snapshots, forks and rollback over the API."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from atoll.engines import MachineEndedError
from atoll.host import remove_tree
from tests.unit.supervisor.world import World, in_world


async def _made(world: World, **spec: object) -> tuple[str, str]:
    made = await world.create(**spec)
    return made["sandbox_id"], f"/v1/sandboxes/{made['sandbox_id']}"


async def _snapshot(world: World, one: str, name: str | None = None) -> Any:
    answer = await world.ask("POST", f"{one}/snapshots", {"name": name, "comment": "why"})
    assert answer.status == 200, answer.body
    return answer.json


@in_world
async def test_a_snapshot_lets_the_sandbox_go_on(world: World) -> None:
    sandbox_id, one = await _made(world)
    snapshot = await _snapshot(world, one, "s1")
    assert not world.machine_of(sandbox_id).paused
    assert (snapshot["name"], snapshot["comment"], snapshot["parent_id"]) == ("s1", "why", None)
    assert (await world.ask("GET", one)).json["snapshot_id"] == snapshot["snapshot_id"]


@in_world
async def test_a_paused_sandbox_stays_paused_over_a_snapshot(world: World) -> None:
    sandbox_id, one = await _made(world)
    await world.ask("POST", f"{one}/pause")
    await _snapshot(world, one)
    assert world.machine_of(sandbox_id).paused
    assert (await world.ask("GET", one)).json["state"] == "paused"


@in_world
async def test_a_suspended_sandbox_is_not_woken_by_a_snapshot(world: World) -> None:
    _, one = await _made(world)
    await world.ask("POST", f"{one}/suspend")
    snapshot = await _snapshot(world, one)
    assert world.host.machines == {}
    made = await world.create(from_snapshot=snapshot["snapshot_id"])
    assert made["state"] == "running"


@in_world
async def test_a_failed_snapshot_leaves_the_sandbox_running_and_nothing_else(world: World) -> None:
    sandbox_id, one = await _made(world)
    world.host.fail_next("checkpoint")
    assert (await world.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 500
    assert not world.machine_of(sandbox_id).paused
    assert list(world.home.snapshots.iterdir()) == []
    assert world.layers.ids() == []
    await _snapshot(world, one, "s1")


@in_world
async def test_the_next_snapshots_parent_is_the_one_before(world: World) -> None:
    _, one = await _made(world)
    first = await _snapshot(world, one, "s1")
    second = await _snapshot(world, one, "s2")
    assert second["parent_id"] == first["snapshot_id"]
    refused = await world.ask("DELETE", "/v1/snapshots/s1")
    assert (refused.status, refused.json["code"]) == (409, "in_use")
    assert (await world.ask("DELETE", "/v1/snapshots/s2")).status == 204
    assert (await world.ask("DELETE", "/v1/snapshots/s1")).status == 204
    assert world.layers.ids() == []


@in_world
async def test_snapshot_names_are_unique_in_the_home(world: World) -> None:
    _, one = await _made(world)
    _, two = await _made(world)
    await _snapshot(world, one, "s1")
    assert (await world.ask("POST", f"{two}/snapshots", {"name": "s1"})).json["code"] == "name_taken"


@in_world
async def test_snapshots_outlive_their_sandbox(world: World) -> None:
    sandbox_id, one = await _made(world)
    world.machine_of(sandbox_id).memory = "then"
    await _snapshot(world, one, "s1")
    await world.ask("DELETE", one)
    listed = (await world.ask("GET", f"/v1/snapshots?sandbox={sandbox_id}")).json
    assert [each["name"] for each in listed] == ["s1"]
    made = await world.create(from_snapshot="s1")
    assert world.machine_of(made["sandbox_id"]).memory == "then"


@in_world
async def test_a_copy_gets_an_identity_of_its_own_and_forgets_connections(world: World) -> None:
    _, one = await _made(world, name="one", env={"A": "1"})
    old = world.agents.inits[-1]
    await _snapshot(world, one, "s1")
    made = await world.create(from_snapshot="s1", name="two", env={"B": "2"})
    told = world.agents.inits[-1]
    assert told.hostname == "two"
    assert told.machine_id != old.machine_id
    assert told.generation == 2
    assert told.entropy
    assert told.env == {"LANG": "C", "A": "1", "B": "2"}
    running: Any = world.system.registry.sandbox(made["sandbox_id"]).running
    assert running.link.calls == ["reset 1"]


@in_world
async def test_a_snapshot_that_a_sandbox_stands_on_is_kept(world: World) -> None:
    _, one = await _made(world)
    await _snapshot(world, one, "s1")
    made = await world.create(from_snapshot="s1")
    refused = await world.ask("DELETE", "/v1/snapshots/s1")
    assert refused.json["code"] == "in_use"
    assert made["sandbox_id"] in refused.json["message"]
    await world.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    assert (await world.ask("DELETE", "/v1/snapshots/s1")).status == 204


@in_world
async def test_a_fork_has_no_attribute_that_is_its_originals_own(world: World) -> None:
    _, one = await _made(world, attributes={"kind": "a", "own_request": "b"})
    (copy,) = (await world.ask("POST", f"{one}/fork", {})).json
    assert (copy["attributes"], (await world.ask("GET", one)).json["attributes"]) == (
        {"kind": "a"},
        {"kind": "a", "own_request": "b"},
    )


@in_world
async def test_forks_run_beside_their_original_with_its_memory(world: World) -> None:
    sandbox_id, one = await _made(world, name="one", metadata={"a": "b"})
    world.machine_of(sandbox_id).memory = "shared"
    copies = (await world.ask("POST", f"{one}/fork", {"count": 3})).json
    assert len({copy["sandbox_id"] for copy in copies} | {sandbox_id}) == 4
    assert all(copy["name"] is None and copy["metadata"] == {"a": "b"} for copy in copies)
    assert all(world.machine_of(copy["sandbox_id"]).memory == "shared" for copy in copies)
    assert world.machine_of(sandbox_id).alive
    await world.until(lambda: list(world.home.snapshots.iterdir()) == [])
    assert (await world.ask("GET", "/v1/snapshots")).json == []


@pytest.mark.parametrize("much", [False, True])
def test_only_a_layer_with_much_on_it_is_copied_before_the_guest_stands_still(much: bool) -> None:
    async def lived(world: World) -> None:
        _, one = await _made(world)
        world.layers.has_much = much
        assert (await world.ask("POST", f"{one}/fork", {})).status == 200
        assert world.layers.early_copies == int(much)

    in_world(lived)()


@in_world
async def test_a_suspended_sandbox_is_forked_without_being_woken(world: World) -> None:
    sandbox_id, one = await _made(world)
    await world.ask("POST", f"{one}/suspend")
    (copy,) = (await world.ask("POST", f"{one}/fork", {})).json
    assert list(world.host.machines) == [world.machine_of(copy["sandbox_id"]).machine_id]
    assert (await world.ask("GET", one)).json["state"] == "suspended"
    assert (world.home.sandboxes / sandbox_id / "checkpoint").is_dir()


@in_world
async def test_of_forks_there_are_all_or_none(world: World) -> None:
    sandbox_id, one = await _made(world)
    world.agents.fail_after = 2
    removals = itertools.count(1)

    def remove(path: Path) -> None:
        # The second copy that fails is still being removed when the first one's failure cancels it.
        time.sleep(1 if next(removals) == 2 else 0)
        remove_tree(path)

    with patch("atoll.supervisor.storage.trash.remove_tree", remove):
        answer = await world.ask("POST", f"{one}/fork", {"count": 4})
    assert answer.status == 500
    listed = (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"]
    assert [each["sandbox_id"] for each in listed] == [sandbox_id]
    assert list(world.host.machines) == [world.machine_of(sandbox_id).machine_id]
    assert len(world.links.open) == 1
    assert [entry.name for entry in world.home.sandboxes.iterdir()] == [sandbox_id]
    assert world.layers.ids() == []


@in_world
async def test_forks_have_the_names_that_were_given_in_their_order(world: World) -> None:
    _, one = await _made(world, name="one")
    copies = (await world.ask("POST", f"{one}/fork", {"count": 2, "names": ["right", "left"]})).json
    assert [copy["name"] for copy in copies] == ["right", "left"]
    for copy in copies:
        found = (await world.ask("GET", f"/v1/sandboxes/{copy['name']}")).json
        assert found["sandbox_id"] == copy["sandbox_id"]
    await world.ask("DELETE", "/v1/sandboxes/left")
    assert (await world.ask("POST", f"{one}/fork", {"names": ["left"]})).json[0]["name"] == "left"


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
    async def lived(world: World) -> None:
        sandbox_id, one = await _made(world, name="taken")
        with world.system.registry.reserve_sandbox_name("coming"):
            answer = await world.ask("POST", f"{one}/fork", {"count": 2, "names": names})
        assert answer.json["code"] == code
        assert "checkpoint" not in {call.method for call in world.host.calls}
        listed = (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"]
        assert [each["sandbox_id"] for each in listed] == [sandbox_id]
        good = await world.ask("POST", f"{one}/fork", {"count": 2, "names": ["new", "same"]})
        assert good.status == 200, "a refused name must be free again"

    in_world(lived)()


@in_world
async def test_the_names_of_forks_that_failed_are_free_again(world: World) -> None:
    _, one = await _made(world)
    world.agents.fail_after = 1
    body = {"count": 2, "names": ["left", "right"]}
    assert (await world.ask("POST", f"{one}/fork", body)).status == 500
    world.agents.fail_after = None
    assert (await world.ask("POST", f"{one}/fork", body)).status == 200


@in_world
async def test_a_fork_of_none_or_of_too_many_is_refused(world: World) -> None:
    _, one = await _made(world)
    for count in (0, 101):
        assert (await world.ask("POST", f"{one}/fork", {"count": count})).json["code"] == "invalid_spec"


@in_world
async def test_a_rollback_keeps_id_and_name_and_brings_memory_and_disk_back(world: World) -> None:
    sandbox_id, one = await _made(world, name="one")
    disk = world.home.sandboxes / sandbox_id
    (disk / "d1" / "upper" / "file").write_text("then")
    world.machine_of(sandbox_id).memory = "then"
    await _snapshot(world, one, "s1")
    world.machine_of(sandbox_id).memory = "now"
    old = world.machine_of(sandbox_id)
    answer = await world.ask("POST", f"{one}/rollback", {"snapshot": "s1"})
    assert (answer.json["sandbox_id"], answer.json["name"], answer.json["state"]) == (
        sandbox_id,
        "one",
        "running",
    )
    assert world.machine_of(sandbox_id).memory == "then"
    assert not old.alive
    assert len(world.links.open) == len(world.host.machines) == 1
    assert not (disk / "d1").exists()
    assert (disk / "d2").is_dir()


@in_world
async def test_a_failed_rollback_leaves_the_sandbox_as_it_was(world: World) -> None:
    sandbox_id, one = await _made(world)
    await _snapshot(world, one, "s1")
    world.machine_of(sandbox_id).memory = "now"
    before = (await world.ask("GET", one)).json
    for failing in ("machine", "disk", "agent"):
        if failing == "machine":
            world.host.fail_next("start")
        elif failing == "disk":
            world.layers.fail_next_branch = True
        else:
            world.agents.fail_after = 0
        assert (await world.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).status == 500, failing
        world.agents.fail_after = None
        assert (await world.ask("GET", one)).json == before, failing
        assert world.machine_of(sandbox_id).memory == "now", failing
        assert not world.machine_of(sandbox_id).paused, failing
        assert len(world.links.open) == len(world.host.machines) == 1, failing
        assert not (world.home.sandboxes / sandbox_id / "d2").exists(), failing


@in_world
async def test_a_suspended_or_crashed_sandbox_can_be_rolled_back(world: World) -> None:
    sandbox_id, one = await _made(world)
    await _snapshot(world, one, "s1")
    await world.ask("POST", f"{one}/suspend")
    assert (await world.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).json["state"] == "running"
    assert not (world.home.sandboxes / sandbox_id / "checkpoint").exists()
    world.machine_of(sandbox_id).crash()
    await world.until(lambda: world.system.registry.sandbox(sandbox_id).row.state == "crashed")
    assert (await world.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).json["state"] == "running"
    assert len(world.links.open) == 1


@in_world
async def test_a_rollback_goes_back_along_the_sandbox_s_own_line_only(world: World) -> None:
    async def snap(sandbox_id: str, name: str) -> None:
        answer = await world.ask("POST", f"/v1/sandboxes/{sandbox_id}/snapshots", {"name": name})
        assert answer.status == 200, answer.body

    async def back(sandbox_id: str, name: str) -> str:
        answer = await world.ask("POST", f"/v1/sandboxes/{sandbox_id}/rollback", {"snapshot": name})
        return cast(str, answer.json.get("code", "done"))

    one, other = (await world.create())["sandbox_id"], (await world.create())["sandbox_id"]
    for name in ("first", "second"):
        await snap(one, name)
    await snap(other, "stranger")
    answer = await world.ask("POST", f"/v1/sandboxes/{one}/fork", {"count": 1})
    (copy,) = (each["sandbox_id"] for each in answer.json)
    await snap(one, "third")
    made = (await world.create(from_snapshot="first"))["sandbox_id"]
    wanted = {
        one: ["first", "third", "second"],
        copy: ["first"],
        made: ["first"],
    }
    for sandbox_id, names in wanted.items():
        assert [await back(sandbox_id, name) for name in names] == ["done"] * len(names)
        assert await back(sandbox_id, "stranger") == "invalid_spec"
    assert await back(copy, "third") == await back(made, "second") == "invalid_spec"


@in_world
async def test_what_a_public_template_was_made_from_is_not_its_users_to_go_back_to(world: World) -> None:
    await world.ask("POST", "/v1/teams", {"name": "blue"})
    await world.ask("POST", "/v1/teams", {"name": "red"})
    one = await world.create(team="blue")
    for name in ("secret", "public"):
        await world.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": name})
    made = await world.create(team="red", from_snapshot="public")
    path = f"/v1/sandboxes/{made['sandbox_id']}/rollback"
    assert (await world.ask("POST", path, {"snapshot": "secret"})).json["code"] == "invalid_spec"
    assert (await world.ask("POST", path, {"snapshot": "public"})).status == 200


@in_world
async def test_what_starts_from_a_snapshot_of_a_closed_sandbox_is_closed_unless_it_is_to_be_open(
    world: World,
) -> None:
    one = await world.create(network="none")
    await world.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": "closed"})
    for asked, network in (({}, "none"), ({"network": "internet"}, "internet")):
        made = await world.create(from_snapshot="closed", **asked)
        assert made["network"] == network
        assert cast(Any, world.system.registry.sandbox(made["sandbox_id"]).running).link.policy == network
    assert (await world.create())["network"] == "internet"


@in_world
async def test_what_was_settled_when_a_snapshot_was_made_is_not_asked_for_in_vain(world: World) -> None:
    one = await world.create()
    await world.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": "made"})
    closed = await world.create(trust_host_ca=False)
    await world.ask("POST", f"/v1/sandboxes/{closed['sandbox_id']}/snapshots", {"name": "closed"})
    refused: tuple[tuple[str, dict[str, bool]], ...] = (
        ("made", {"trust_host_ca": False}),
        ("made", {"start": True}),
        ("closed", {"trust_host_ca": True}),
    )
    for name, asked in refused:
        answer = await world.ask("POST", "/v1/sandboxes", {"from_snapshot": name, **asked})
        assert answer.json["code"] == "invalid_spec"
    for name, trusted in (("made", True), ("closed", False)):
        for given in ({}, {"start": False, "trust_host_ca": trusted}):
            made = await world.create(from_snapshot=name, **given)
            row = world.system.registry.sandbox(made["sandbox_id"]).row
            assert (row.start, row.trust_host_ca) == (False, trusted)


@in_world
async def test_a_copy_that_ends_as_soon_as_it_runs_is_told_to_have_crashed_and_leaves_nothing(
    world: World,
) -> None:
    _, one = await _made(world)
    await _snapshot(world, one, "s1")
    there = [
        list(world.links.open),
        list(world.host.machines),
        len((await world.ask("GET", "/v1/sandboxes")).json),
    ]
    for path, body in (("/v1/sandboxes", {"from_snapshot": "s1"}), (f"{one}/fork", {"count": 1})):
        world.host.fail_next("start", MachineEndedError("it ended as soon as it had started"))
        answer = await world.ask("POST", path, body)
        assert (answer.json["code"], "earlier snapshot" in answer.json["hint"]) == ("sandbox_crashed", True)
    assert there == [
        list(world.links.open),
        list(world.host.machines),
        len((await world.ask("GET", "/v1/sandboxes")).json),
    ]


@in_world
async def test_a_rollback_to_an_unknown_snapshot_is_not_found(world: World) -> None:
    _, one = await _made(world)
    answer = await world.ask("POST", f"{one}/rollback", {"snapshot": "nope"})
    assert (answer.status, answer.json["code"]) == (404, "snapshot_not_found")


@in_world
async def test_an_operation_goes_on_when_its_client_leaves(world: World) -> None:
    sandbox_id, one = await _made(world)
    going_on = world.host.hold("checkpoint")
    asking = world.system.tasks.watch(cast(Any, world.ask("POST", f"{one}/suspend")))
    await world.until(lambda: any(call.method == "checkpoint" for call in world.host.calls))
    asking.cancel()
    await world.until(asking.done)
    going_on.set()
    await world.until(lambda: world.system.registry.sandbox(sandbox_id).row.state == "suspended")
