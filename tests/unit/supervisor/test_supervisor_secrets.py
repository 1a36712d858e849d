"""Secrets of a supervisor on fakes: who finds them, what of them is stored, and what the edge gets."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import DamagedError, HostError, InvalidSpecError, SecretNotFoundError
from atoll.supervisor.settings import Settings, read_settings
from tests.secret_forms import forms
from tests.unit.supervisor.harness import Harness, with_harness

VALUE = "p/a?s=s+w o&r:d-ünique-3141592653"


async def made(harness: Harness, name: str = "mail", value: str = VALUE, **more: object) -> Any:
    answer = await harness.ask("POST", "/v1/secrets", {"name": name, "value": value, **more})
    assert answer.status == 200, answer.body
    return answer.json


async def refused(harness: Harness, method: str, path: str, body: object = None) -> tuple[int, str]:
    answer = await harness.ask(method, path, body)
    assert VALUE.encode() not in answer.body
    return answer.status, answer.json["code"]


def holding(path: Path, *wanted: bytes) -> list[Path]:
    files = [found for found in path.rglob("*") if found.is_file()]
    return [found for found in files if any(one in found.read_bytes() for one in wanted)]


@with_harness
async def test_a_secret_is_made_listed_updated_and_deleted_and_never_said(harness: Harness) -> None:
    info = await made(harness, "GitHub", hosts=["API.GitHub.com.", "*.github.com"], metadata={"for": "ci"})
    assert info == {
        "secret_id": info["secret_id"],
        "name": "github",
        "team": None,
        "hosts": ["api.github.com", "*.github.com"],
        "metadata": {"for": "ci"},
        "canary": False,
        "version": 1,
        "created_at": info["created_at"],
        "changed_at": info["created_at"],
    }
    assert info["secret_id"].startswith("sec_")
    for ref in ("github", "GITHUB", info["secret_id"]):
        assert (await harness.ask("GET", f"/v1/secrets/{ref}")).json == info
    updated = (await harness.ask("POST", "/v1/secrets/GitHub", {"value": "another one"})).json
    assert (updated["version"], updated["hosts"], updated["metadata"]) == (2, info["hosts"], info["metadata"])
    assert updated["changed_at"] > updated["created_at"] == info["created_at"]
    assert harness.system.secrets.values_for(None, ["github"]) == {"github": "another one"}
    assert (await harness.ask("GET", "/v1/secrets")).json == [updated]
    assert (await harness.ask("DELETE", "/v1/secrets/github")).status == 204
    assert (await harness.ask("GET", "/v1/secrets")).json == []
    for method in ("GET", "DELETE"):
        assert await refused(harness, method, "/v1/secrets/github") == (404, "secret_not_found")
    assert await refused(harness, "POST", "/v1/secrets/github", {"value": "x"}) == (404, "secret_not_found")


@with_harness
async def test_a_change_of_hosts_or_labels_keeps_the_value(harness: Harness) -> None:
    await made(harness)
    bodies: list[dict[str, Any]] = [{"hosts": ["a.example"]}, {"metadata": {"a": "b"}}, {"hosts": []}]
    for body in bodies:
        assert (await harness.ask("POST", "/v1/secrets/mail", body)).status == 200
        assert harness.system.secrets.values_for(None, ["mail"]) == {"mail": VALUE}
    info = (await harness.ask("GET", "/v1/secrets/mail")).json
    assert (info["hosts"], info["metadata"], info["version"]) == ([], {"a": "b"}, 4)


@with_harness
async def test_a_name_is_one_teams_whatever_its_case(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    first, second = await made(harness), await made(harness, value="the team's", team="reef")
    for name in ("mail", "MAIL"):
        taken = await refused(harness, "POST", "/v1/secrets", {"name": name, "value": VALUE, "team": "reef"})
        assert taken == (409, "name_taken")
    secrets = harness.system.secrets
    assert secrets.values_for(None, ["Mail"]) == {"Mail": VALUE}
    assert secrets.values_for("reef", ["mail"]) == {"mail": "the team's"}
    assert (await harness.ask("GET", "/v1/secrets/mail?team=reef")).json == second
    assert (await harness.ask("GET", f"/v1/secrets/{second['secret_id']}")).json == second
    for ref in (first["secret_id"], "other"):
        assert await refused(harness, "GET", f"/v1/secrets/{ref}?team=reef") == (404, "secret_not_found")
        assert await refused(harness, "DELETE", f"/v1/secrets/{ref}?team=reef") == (404, "secret_not_found")
    assert (await harness.ask("GET", "/v1/secrets?team=reef")).json == [second]
    with pytest.raises(SecretNotFoundError):  # an id is no name
        secrets.values_for("reef", [second["secret_id"]])
    nobody = {"name": "a", "value": VALUE, "team": "nobody"}
    assert await refused(harness, "POST", "/v1/secrets", nobody) == (404, "team_not_found")


@with_harness
async def test_what_makes_no_sense_is_refused_without_showing_it(harness: Harness) -> None:
    wrong: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "a b"},
        {"name": VALUE},
        {"name": "x" * 129},
        {"name": "sec_mine"},
        {"name": "Sec_mine"},
        {"value": ""},
        {"value": f"{VALUE}\n"},
        {"value": f"{VALUE}\r{VALUE}"},
        {"value": f"{VALUE}\0"},
        {"value": f"{VALUE}{'é' * 32768}"},
        {"value": [VALUE]},
        {"hosts": ["10.0.0.1"]},
        {"hosts": ["a example"]},
        {"hosts": [f"h{number}.example" for number in range(65)]},
        {"metadata": {"a": "x" * 1025}},
        {"metadata": {"x" * 129: "a"}},
        {"metadata": {str(number): "" for number in range(33)}},
        {"metadata": {str(number): "x" * 1000 for number in range(9)}},
        {"strange": VALUE},
    ]
    for change in wrong:
        body = {"name": "mail", "value": VALUE, **change}
        assert await refused(harness, "POST", "/v1/secrets", body) == (400, "invalid_spec"), change
    assert (await harness.ask("GET", "/v1/secrets")).json == []
    assert list(harness.home.secrets.iterdir()) == []
    await made(harness, value="x" * 65536)
    for change in ({}, {"value": f"{VALUE}\n"}, {"hosts": ["?"]}, {"canary": True}):
        assert await refused(harness, "POST", "/v1/secrets/mail", change) == (400, "invalid_spec")
    assert harness.system.secrets.values_for(None, ["mail"]) == {"mail": "x" * 65536}
    with patch("atoll.supervisor.tenants.secrets._SECRETS_MOST", 1):
        many = await refused(harness, "POST", "/v1/secrets", {"name": "more", "value": VALUE})
        assert many == (400, "invalid_spec")


@with_harness
async def test_a_secret_outlives_the_supervisor_and_the_database(harness: Harness) -> None:
    info = await made(harness, hosts=["a.example"], canary=False)
    fake = await made(harness, "bait", "fake value", canary=True)
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", "/v1/secrets")).json == [info, fake]
    assert harness.system.secrets.values_for(None, ["mail"]) == {"mail": VALUE}
    updated = (await harness.ask("POST", "/v1/secrets/mail", {"value": "second"})).json
    await harness.crash()
    for file in harness.home.path.glob("state.db*"):
        file.write_bytes(b"no database")
    await harness.start()
    listed = (await harness.ask("GET", "/v1/secrets")).json
    assert sorted(listed, key=lambda one: one["name"]) == [fake, updated]
    assert harness.system.secrets.values_for(None, ["mail"]) == {"mail": "second"}
    assert harness.system.secrets.canaries_for(None) == {"bait": "fake value"}


@with_harness
async def test_no_file_of_the_home_has_a_value_in_any_form(harness: Harness) -> None:
    other = "a-second-value-2718281828"
    searched = [*forms(VALUE), *forms(other)]
    await made(harness)
    assert holding(harness.home.path, b'"sealed":') == [
        harness.home.secrets / (await harness.ask("GET", "/v1/secrets/mail")).json["secret_id"] / "row.json"
    ]
    assert holding(harness.home.path, *searched) == []
    await harness.ask("POST", "/v1/secrets/mail", {"value": other})
    await harness.ask("POST", "/v1/secrets/mail", {"value": f"{other}\n"})
    await harness.ask("GET", "/v1/secrets")
    harness.system.secrets.values_for(None, ["mail"])
    await harness.crash()
    assert holding(harness.home.path, *searched) == []
    await harness.start()
    assert harness.system.secrets.values_for(None, ["mail"]) == {"mail": other}
    await harness.ask("DELETE", "/v1/secrets/mail")
    assert holding(harness.home.path, *searched) == []


@with_harness
async def test_what_is_replaced_or_deleted_leaves_nothing_sealed_behind(harness: Harness) -> None:
    def sealed() -> list[bytes]:
        with sqlite3.connect(harness.home.database) as database:
            rows = database.execute("SELECT sealed FROM secrets ORDER BY name").fetchall()
        database.close()
        return [bytes(row[0]) for row in rows]

    await made(harness, "kept", "z" * 40_000)
    await made(harness, "short")
    await made(harness, "long", "y" * 60_000)
    kept, long, short = sealed()
    await harness.ask("POST", "/v1/secrets/short", {"value": VALUE})
    replaced = short
    short = sealed()[2]
    assert replaced != short
    await harness.ask("DELETE", "/v1/secrets/long")
    await harness.ask("DELETE", "/v1/secrets/short")
    assert sealed() == [kept]
    for gone in (replaced, long, short):
        # Pages of the database have some bytes of their own between those of a long value.
        pieces = [gone[at : at + 24] for at in range(0, len(gone) - 24, 24)]
        assert holding(harness.home.path, *pieces, base64.b64encode(gone)) == []
    assert len(list(harness.home.secrets.iterdir())) == 1


@with_harness
async def test_a_row_that_somebody_changed_opens_no_more_and_a_new_value_mends_it(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    await made(harness, "one", "first", hosts=["a.example"])
    await made(harness, "other", "second", hosts=["a.example"])
    await made(harness, "third", "of a team", team="reef")
    changes = [
        "UPDATE secrets SET hosts = '[]' WHERE name = 'one'",
        "UPDATE secrets SET version = 7 WHERE name = 'one'",
        "UPDATE secrets SET name = 'two' WHERE name = 'one'",
        "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'other') WHERE name = 'one'",
        "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'third') WHERE name = 'one'",
        "UPDATE secrets SET team = 'reef' WHERE name = 'one'",
        "UPDATE secrets SET sealed = x'00' WHERE name = 'one'",
    ]
    for change in changes:
        await harness.crash()
        before = harness.home.database.read_bytes()
        database = sqlite3.connect(harness.home.database)
        database.execute(change)
        database.commit()
        database.close()
        copies = [path for path in harness.home.secrets.glob("*/row.json")]
        kept = [path.read_bytes() for path in copies]
        for path in copies:  # else they would mend it
            path.unlink()
        await harness.start()
        secrets = harness.system.secrets
        changed = next(info for info in secrets.list() if info.name in ("one", "two"))
        with pytest.raises(DamagedError, match="atoll secret update"):
            secrets.values_for(changed.team, [changed.name])
        assert secrets.values_for(None, ["other"]) == {"other": "second"}
        answer = await harness.ask("POST", f"/v1/secrets/{changed.secret_id}", {"hosts": []})
        assert (answer.status, answer.json["code"]) == (500, "damaged")
        await harness.crash()
        for path, content in zip(copies, kept, strict=True):
            path.write_bytes(content)
        for path in harness.home.path.glob("state.db-*"):
            path.unlink()
        harness.home.database.write_bytes(before)
        await harness.start()
    harness.home.secrets_key.write_text("00" * 32)
    await harness.crash()
    await harness.start()
    with pytest.raises(DamagedError):
        harness.system.secrets.values_for(None, ["one"])
    assert (await harness.ask("POST", "/v1/secrets/one", {"value": "mended"})).status == 200
    assert harness.system.secrets.values_for(None, ["one"]) == {"one": "mended"}


@with_harness
async def test_without_its_key_no_other_key_is_made_and_the_rest_goes_on(harness: Harness) -> None:
    assert not harness.home.secrets_key.exists()
    await made(harness)
    assert harness.home.secrets_key.stat().st_mode & 0o7777 == 0o600
    key = harness.home.secrets_key.read_bytes()
    await harness.crash()
    harness.home.secrets_key.unlink()
    await harness.start()
    await harness.create()
    with pytest.raises(HostError, match="is missing"):
        harness.system.secrets.values_for(None, ["mail"])
    body = {"name": "more", "value": VALUE}
    assert await refused(harness, "POST", "/v1/secrets", body) == (500, "host_unfit")
    assert not harness.home.secrets_key.exists()
    harness.home.secrets_key.write_bytes(key)
    assert harness.home.secrets_key.stat().st_mode & 0o077
    with pytest.raises(HostError, match="chmod 600"):
        harness.system.secrets.values_for(None, ["mail"])
    harness.home.secrets_key.chmod(0o600)
    assert harness.system.secrets.values_for(None, ["mail"]) == {"mail": VALUE}
    harness.home.secrets_key.unlink()
    await harness.crash()
    await harness.start()
    assert (await harness.ask("DELETE", "/v1/secrets/mail")).status == 204
    await made(harness, "anew")
    assert harness.home.secrets_key.read_bytes() != key


@with_harness
async def test_a_team_goes_with_its_secrets(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    await made(harness, team="reef")
    kept = await made(harness)
    assert (await harness.ask("DELETE", "/v1/teams/reef")).status == 204
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    assert (await harness.ask("GET", "/v1/secrets?team=reef")).json == []
    assert (await harness.ask("GET", "/v1/secrets")).json == [kept]
    assert [path.name for path in harness.home.secrets.iterdir()] == [kept["secret_id"]]


@with_harness
async def test_who_follows_is_told_of_each_change_and_cannot_undo_it(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    told: list[tuple[str | None, str]] = []

    def fail(team: str | None, name: str) -> None:
        raise RuntimeError(name)

    harness.system.secrets.follow(fail)
    harness.system.secrets.follow(lambda team, name: told.append((team, name)))
    await made(harness, "One")
    await made(harness, "two", team="reef")
    await harness.ask("POST", "/v1/secrets/one", {"value": "x"})
    await harness.ask("POST", "/v1/secrets/one", {"value": "x\n"})
    await harness.ask("DELETE", "/v1/secrets/one")
    await harness.ask("DELETE", "/v1/teams/reef")
    assert told == [(None, "one"), ("reef", "two"), (None, "one"), (None, "one"), ("reef", "two")]


@with_harness
async def test_a_canary_is_never_sent_and_the_edge_gets_all_of_a_team(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    assert (await made(harness, "bait", "fake", canary=True))["canary"] is True
    await made(harness, "bait", "the team's fake", canary=True, team="reef")
    await made(harness)
    secrets = harness.system.secrets
    assert secrets.canaries_for(None) == {"bait": "fake"}
    assert secrets.canaries_for("reef") == {"bait": "the team's fake"}
    with pytest.raises(InvalidSpecError, match="canary"):
        secrets.values_for(None, ["mail", "bait"])
    assert secrets.values_for(None, []) == {}


@with_harness
async def test_a_secret_goes_to_the_hosts_that_it_is_bound_to_and_no_other(harness: Harness) -> None:
    await made(harness, hosts=["api.example.com", "*.mail.example"])
    await made(harness, "free")
    secrets = harness.system.secrets
    secrets.check_hosts(None, "MAIL", ["API.example.com", "a.b.mail.example", "*.a.mail.example"])
    secrets.check_hosts(None, "free", ["*"])
    for host in ("example.com", "*.example.com", "*", "mail.example", "evilmail.example", "10.0.0.1"):
        with pytest.raises(InvalidSpecError, match="may not be sent"):
            secrets.check_hosts(None, "mail", ["api.example.com", host])
    with pytest.raises(SecretNotFoundError):
        secrets.check_hosts("reef", "mail", [])


@with_harness
async def test_of_many_that_ask_for_one_name_at_once_one_gets_it(harness: Harness) -> None:
    body = {"name": "mail", "value": VALUE}
    answers = await asyncio.gather(*(harness.ask("POST", "/v1/secrets", body) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200, *[409] * 7]
    assert len((await harness.ask("GET", "/v1/secrets")).json) == 1


@with_harness
async def test_what_a_crash_left_of_a_secret_that_never_was_is_removed(harness: Harness) -> None:
    await harness.crash()
    (harness.home.secrets / "sec_0000").mkdir()
    (harness.home.secrets / ".erased-sec_1").mkdir()
    await harness.start()
    assert list(harness.home.secrets.iterdir()) == []


def test_the_keyring_is_asked_for_by_its_setting() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"ATOLL_SECRETS_KEYRING": "on"}).secrets_keyring == "on"
    with pytest.raises(InvalidSpecError, match="on or off"):
        read_settings({"ATOLL_SECRETS_KEYRING": "yes"})
