"""Teams and keys of a supervisor on fakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import DeniedError
from tests.unit.supervisor.harness import Harness, with_harness


async def key_of(harness: Harness, team: str, **more: object) -> Any:
    await harness.ask("POST", "/v1/teams", {"name": team})
    answer = await harness.ask("POST", "/v1/keys", {"team": team, "name": "for a test", **more})
    assert answer.status == 200, answer.body
    return answer.json


async def opens(harness: Harness, key: str) -> bool:
    answer = await harness.ask("POST", "/v1/keys/check", {"key": key})
    assert answer.status in (200, 401)
    assert answer.status == 200 or answer.json["message"] == "the key is wrong"
    return answer.status == 200


def holding(path: Path, text: str) -> list[Path]:
    return [found for found in path.rglob("*") if found.is_file() and text.encode() in found.read_bytes()]


@with_harness
async def test_a_key_opens_what_its_team_has_until_it_is_revoked(harness: Harness) -> None:
    made = await key_of(harness, "reef")
    assert re.fullmatch("e2b_[0-9a-f]{40}", made["key"])
    told = await harness.ask("POST", "/v1/keys/check", {"key": made["key"]})
    assert (told.status, told.json["name"]) == (200, "reef")
    listed = (await harness.ask("GET", "/v1/keys?team=reef")).json
    assert [key["key_id"] for key in listed] == [made["info"]["key_id"]]
    assert listed[0]["used_at"] is not None
    assert (await harness.ask("DELETE", f"/v1/keys/{made['info']['key_id']}")).json["revoked_at"] is not None
    assert not await opens(harness, made["key"])
    assert not await opens(harness, "e2b_" + "0" * 40)
    assert not await opens(harness, "")
    assert not await opens(harness, "é" * 300)


@with_harness
async def test_a_key_expires(harness: Harness) -> None:
    made = await key_of(harness, "reef", expires_in_s=100)
    assert await opens(harness, made["key"])
    harness.now_s += 200
    assert not await opens(harness, made["key"])


@with_harness
async def test_only_the_hash_of_a_key_is_on_the_disk(harness: Harness) -> None:
    made = await key_of(harness, "reef")
    assert await opens(harness, made["key"])
    await harness.crash()
    assert holding(harness.home.path, made["key"][4:]) == []
    assert holding(harness.home.path, made["info"]["key_id"])
    await harness.start()


@with_harness
async def test_teams_and_keys_come_back_when_the_database_is_lost(harness: Harness) -> None:
    kept, revoked = await key_of(harness, "reef"), await key_of(harness, "reef")
    await harness.ask("DELETE", f"/v1/keys/{revoked['info']['key_id']}")
    await harness.ask("PUT", "/v1/teams/reef/quotas", {"running": 3})
    await harness.crash()
    for file in harness.home.path.glob("state.db*"):
        file.write_bytes(b"no database")
    await harness.start()
    assert (await harness.ask("GET", "/v1/teams/reef")).json["quotas"] == {"running": 3}
    assert await opens(harness, kept["key"])
    assert not await opens(harness, revoked["key"])


@with_harness
async def test_a_team_that_owns_something_is_not_deleted_and_its_keys_go_with_it(harness: Harness) -> None:
    made = await key_of(harness, "reef")
    sandbox = await harness.create(team="reef")
    refused = await harness.ask("DELETE", "/v1/teams/reef")
    assert (refused.status, refused.json["code"]) == (409, "in_use")
    assert sandbox["sandbox_id"] in refused.json["message"]
    await harness.ask("DELETE", f"/v1/sandboxes/{sandbox['sandbox_id']}")
    assert (await harness.ask("DELETE", "/v1/teams/reef")).status == 204
    assert (await harness.ask("GET", "/v1/teams/reef")).json["code"] == "team_not_found"
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    with pytest.raises(DeniedError):
        await harness.system.keys.check(made["key"])
    assert list(harness.home.keys.iterdir()) == []


@with_harness
async def test_lists_show_the_sandboxes_and_snapshots_of_a_team_alone(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    mine, _ = await harness.create(team="reef"), await harness.create()
    ids = [
        one["sandbox_id"] for one in (await harness.ask("GET", "/v1/sandboxes?team=reef")).json["sandboxes"]
    ]
    assert ids == [mine["sandbox_id"]]
    made = (await harness.ask("POST", f"/v1/sandboxes/{mine['sandbox_id']}/snapshots", {})).json
    assert [one["snapshot_id"] for one in (await harness.ask("GET", "/v1/snapshots?team=reef")).json] == [
        made["snapshot_id"]
    ]
    assert (await harness.ask("GET", "/v1/snapshots?team=other")).json == []


@with_harness
async def test_a_name_or_a_number_that_makes_no_sense_is_refused(harness: Harness) -> None:
    body: dict[str, Any]
    for body in ({"name": "../up"}, {"name": "a" * 33}, {"name": "a", "quotas": {"running": -1}}):
        assert (await harness.ask("POST", "/v1/teams", body)).status == 400
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    assert (await harness.ask("POST", "/v1/teams", {"name": "reef"})).status == 409
    for body in ({"name": ""}, {"name": "a\n"}, {"name": "a", "expires_in_s": 0}):
        assert (await harness.ask("POST", "/v1/keys", {"team": "reef", **body})).status == 400
    assert (await harness.ask("POST", "/v1/keys", {"team": "none", "name": "a"})).status == 404
    assert list(harness.home.keys.iterdir()) == []


@with_harness
async def test_what_a_crash_left_of_a_key_that_never_was_is_removed(harness: Harness) -> None:
    made = await key_of(harness, "reef")
    await harness.crash()
    (harness.home.keys / "key-0000000000000000").mkdir()
    (harness.home.teams / ".erased-gone").mkdir()
    await harness.start()
    assert [entry.name for entry in harness.home.keys.iterdir()] == [made["info"]["key_id"]]
    assert [entry.name for entry in harness.home.teams.iterdir()] == ["reef"]
    assert await opens(harness, made["key"])
