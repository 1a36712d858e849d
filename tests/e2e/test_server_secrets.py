"""Secrets over the API of `atoll serve`: what is told of them, by whom they are found, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from tests.e2e.server import Server

from atoll import Keys, Secrets, Teams

WAIT_S = 60.0
VALUE = "hunter2-of-the-api"


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=WAIT_S) as client:
        yield client
        for one in client.get("/secrets").json():
            client.delete(f"/secrets/{one['secretID']}")


def test_a_secret_is_made_found_changed_and_erased(api: httpx.Client) -> None:
    answer = api.post("/secrets", json={"name": "My_Key", "value": VALUE, "metadata": {"a": "b"}})
    made = answer.json()
    assert answer.status_code == 201
    assert (made["name"], made["currentVersion"], made["metadata"]) == ("my_key", 1, {"a": "b"})
    assert made["secretID"].startswith("sec_")
    for ref in (made["secretID"], "my_key", "MY_KEY"):
        assert api.get(f"/secrets/{ref}").json() == made
    assert api.get("/secrets").json() == [made]
    changed = api.post("/secrets/my_key", json={"value": "another"}).json()
    assert (changed["currentVersion"], changed["metadata"]) == (2, {"a": "b"})
    assert changed["updatedAt"] > changed["createdAt"] == made["createdAt"]
    cleared = api.post(f"/secrets/{made['secretID']}", json={"value": "c", "metadata": {}}).json()
    assert cleared["metadata"] == {}
    assert VALUE not in json.dumps([made, changed, cleared])
    assert api.delete("/secrets/my_key").status_code == 204
    gone = api.get("/secrets/my_key")
    assert (gone.status_code, gone.json()) == (404, {"code": 404, "message": "Secret my_key not found"})
    assert api.delete("/secrets/my_key").status_code == 404
    assert api.post("/secrets/my_key", json={"value": "d"}).status_code == 404


def test_a_list_has_pages(api: httpx.Client) -> None:
    made = [api.post("/secrets", json={"name": f"s{n}", "value": "v"}).json()["secretID"] for n in range(3)]
    first = api.get("/secrets", params={"limit": 2})
    assert [one["secretID"] for one in first.json()] == made[:2]
    rest = api.get("/secrets", params={"limit": 2, "nextToken": first.headers["x-next-token"]})
    assert [one["secretID"] for one in rest.json()] == made[2:]
    assert "x-next-token" not in rest.headers
    assert api.get("/secrets", params={"nextToken": "sec_none"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "sec_mine", "value": VALUE}, 400),
        ({"name": "a b", "value": VALUE}, 400),
        ({"name": "", "value": VALUE}, 400),
        ({"name": "x" * 129, "value": VALUE}, 400),
        ({"name": "taken", "value": VALUE}, 409),
        ({"name": "TAKEN", "value": VALUE}, 409),
        ({"name": "a", "value": ""}, 400),
        ({"name": "a", "value": VALUE + "\n"}, 400),
        ({"name": "a"}, 400),
        ({"name": "a", "value": VALUE, "metadata": {"k" * 129: ""}}, 400),
        ({"name": "a", "value": VALUE, "metadata": {"k": "v" * 1025}}, 400),
        ({"name": "a", "value": VALUE, "metadata": {f"k{n}": "v" for n in range(33)}}, 400),
        ({"name": "a", "value": VALUE, "metadata": {f"k{n}": "v" * 1000 for n in range(9)}}, 400),
    ],
)
def test_what_is_wrong_is_refused_without_the_value(
    api: httpx.Client, body: dict[str, object], status: int
) -> None:
    assert api.post("/secrets", json={"name": "taken", "value": "v"}).status_code == 201
    answer = api.post("/secrets", json=body)
    assert answer.status_code == status
    assert VALUE not in answer.text


def test_a_team_sees_its_own_secrets_only(server: Server, api: httpx.Client) -> None:
    mine = api.post("/secrets", json={"name": "mine", "value": "v"}).json()["secretID"]
    Secrets.create("of-nobody", "v")
    Teams.create("others")
    try:
        key = Keys.create("others", "test").key
        with httpx.Client(base_url=server.url, headers={"X-API-Key": key}, timeout=WAIT_S) as other:
            assert other.get("/secrets").json() == []
            for ref in (mine, "mine", "of-nobody"):
                assert other.get(f"/secrets/{ref}").status_code == 404
                assert other.post(f"/secrets/{ref}", json={"value": "w"}).status_code == 404
                assert other.delete(f"/secrets/{ref}").status_code == 404
            assert other.post("/secrets", json={"name": "mine", "value": "v"}).status_code == 201
    finally:
        Teams.delete("others")
        Secrets.delete("of-nobody")
    assert [one["name"] for one in api.get("/secrets").json()] == ["mine"]
