"""Teams and keys of a supervisor on fakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import DeniedError
from tests.unit.supervisor.world import World, in_world


async def key_of(world: World, team: str, **more: object) -> Any:
    await world.ask("POST", "/v1/teams", {"name": team})
    answer = await world.ask("POST", "/v1/keys", {"team": team, "name": "for a test", **more})
    assert answer.status == 200, answer.body
    return answer.json


async def opens(world: World, key: str) -> bool:
    answer = await world.ask("POST", "/v1/keys/check", {"key": key})
    assert answer.status in (200, 401)
    assert answer.status == 200 or answer.json["message"] == "the key is wrong"
    return answer.status == 200


def holding(path: Path, text: str) -> list[Path]:
    return [found for found in path.rglob("*") if found.is_file() and text.encode() in found.read_bytes()]


@in_world
async def test_a_key_opens_what_its_team_has_until_it_is_revoked(world: World) -> None:
    made = await key_of(world, "reef")
    assert re.fullmatch("e2b_[0-9a-f]{40}", made["key"])
    told = await world.ask("POST", "/v1/keys/check", {"key": made["key"]})
    assert (told.status, told.json["name"]) == (200, "reef")
    listed = (await world.ask("GET", "/v1/keys?team=reef")).json
    assert [key["key_id"] for key in listed] == [made["info"]["key_id"]]
    assert listed[0]["used_at"] is not None
    assert (await world.ask("DELETE", f"/v1/keys/{made['info']['key_id']}")).json["revoked_at"] is not None
    assert not await opens(world, made["key"])
    assert not await opens(world, "e2b_" + "0" * 40)
    assert not await opens(world, "")
    assert not await opens(world, "é" * 300)


@in_world
async def test_a_key_expires(world: World) -> None:
    made = await key_of(world, "reef", expires_in_s=100)
    assert await opens(world, made["key"])
    world.now_s += 200
    assert not await opens(world, made["key"])


@in_world
async def test_only_the_hash_of_a_key_is_on_the_disk(world: World) -> None:
    made = await key_of(world, "reef")
    assert await opens(world, made["key"])
    await world.crash()
    assert holding(world.home.path, made["key"][4:]) == []
    assert holding(world.home.path, made["info"]["key_id"])
    await world.start()


@in_world
async def test_teams_and_keys_come_back_when_the_database_is_lost(world: World) -> None:
    kept, revoked = await key_of(world, "reef"), await key_of(world, "reef")
    await world.ask("DELETE", f"/v1/keys/{revoked['info']['key_id']}")
    await world.ask("PUT", "/v1/teams/reef/quotas", {"running": 3})
    await world.crash()
    for file in world.home.path.glob("state.db*"):
        file.write_bytes(b"no database")
    await world.start()
    assert (await world.ask("GET", "/v1/teams/reef")).json["quotas"] == {"running": 3}
    assert await opens(world, kept["key"])
    assert not await opens(world, revoked["key"])


@in_world
async def test_a_team_that_owns_something_is_not_deleted_and_its_keys_go_with_it(world: World) -> None:
    made = await key_of(world, "reef")
    sandbox = await world.create(team="reef")
    refused = await world.ask("DELETE", "/v1/teams/reef")
    assert (refused.status, refused.json["code"]) == (409, "in_use")
    assert sandbox["sandbox_id"] in refused.json["message"]
    await world.ask("DELETE", f"/v1/sandboxes/{sandbox['sandbox_id']}")
    assert (await world.ask("DELETE", "/v1/teams/reef")).status == 204
    assert (await world.ask("GET", "/v1/teams/reef")).json["code"] == "team_not_found"
    await world.ask("POST", "/v1/teams", {"name": "reef"})
    with pytest.raises(DeniedError):
        await world.system.keys.check(made["key"])
    assert list(world.home.keys.iterdir()) == []


@in_world
async def test_lists_show_the_sandboxes_and_snapshots_of_a_team_alone(world: World) -> None:
    await world.ask("POST", "/v1/teams", {"name": "reef"})
    mine, _ = await world.create(team="reef"), await world.create()
    ids = [one["sandbox_id"] for one in (await world.ask("GET", "/v1/sandboxes?team=reef")).json["sandboxes"]]
    assert ids == [mine["sandbox_id"]]
    made = (await world.ask("POST", f"/v1/sandboxes/{mine['sandbox_id']}/snapshots", {})).json
    assert [one["snapshot_id"] for one in (await world.ask("GET", "/v1/snapshots?team=reef")).json] == [
        made["snapshot_id"]
    ]
    assert (await world.ask("GET", "/v1/snapshots?team=other")).json == []


@in_world
async def test_a_name_or_a_number_that_makes_no_sense_is_refused(world: World) -> None:
    body: dict[str, Any]
    for body in ({"name": "../up"}, {"name": "a" * 33}, {"name": "a", "quotas": {"running": -1}}):
        assert (await world.ask("POST", "/v1/teams", body)).status == 400
    await world.ask("POST", "/v1/teams", {"name": "reef"})
    assert (await world.ask("POST", "/v1/teams", {"name": "reef"})).status == 409
    for body in ({"name": ""}, {"name": "a\n"}, {"name": "a", "expires_in_s": 0}):
        assert (await world.ask("POST", "/v1/keys", {"team": "reef", **body})).status == 400
    assert (await world.ask("POST", "/v1/keys", {"team": "none", "name": "a"})).status == 404
    assert list(world.home.keys.iterdir()) == []


@in_world
async def test_what_a_crash_left_of_a_key_that_never_was_is_removed(world: World) -> None:
    made = await key_of(world, "reef")
    await world.crash()
    (world.home.keys / "key-0000000000000000").mkdir()
    (world.home.teams / ".erased-gone").mkdir()
    await world.start()
    assert [entry.name for entry in world.home.keys.iterdir()] == [made["info"]["key_id"]]
    assert [entry.name for entry in world.home.teams.iterdir()] == ["reef"]
    assert await opens(world, made["key"])
