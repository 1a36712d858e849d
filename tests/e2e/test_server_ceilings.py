"""What clients with a team's key can give a sandbox: no more than the ceiling, and a copy no more than its parent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.e2e.server import Server

from atoll import Keys, Sandbox, Teams
from atoll.types import EgressPolicy, Policy

WAIT_S = 60.0
GIVEN = {"denyOut": ["192.0.2.0/24"]}
ALL = {"denyOut": ["0.0.0.0/0"]}


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    Teams.create("reef")
    key = Keys.create("reef", "for a test").key
    with httpx.Client(base_url=server.url, headers={"X-API-Key": key}, timeout=WAIT_S) as client:
        yield client
        for info in list(Sandbox.list(team="reef")):
            client.delete(f"/sandboxes/{info.sandbox_id}")


def made(api: httpx.Client, template: str = "base", **more: Any) -> str:
    answer = api.post("/sandboxes", json={"templateID": template, "timeout": 600, **more})
    assert answer.status_code == 201, answer.text
    sandbox_id: str = answer.json()["sandboxID"]
    return sandbox_id


def network(sandbox_id: str) -> EgressPolicy:
    with Sandbox.connect(sandbox_id, wake=False) as sandbox:
        return sandbox.info().network


def test_a_key_of_a_team_goes_beyond_neither_the_ceiling_nor_a_parent(api: httpx.Client) -> None:
    parent = made(api, network=GIVEN)
    own = network(parent)
    assert isinstance(own, Policy)
    forks = api.post(f"/sandboxes/{parent}/fork", json={"count": 1, "timeout": 600}).json()
    assert network(forks[0]["sandbox"]["sandboxID"]) == own
    snapshot = api.post(f"/sandboxes/{parent}/snapshots", json={}).json()["snapshotID"]
    for more in ({}, {"network": GIVEN}, {"allow_internet_access": True}):
        assert network(made(api, snapshot, **more)) == own
    assert network(made(api, snapshot, network=ALL)) == "none"
    for wider in ({"denyOut": ["192.0.2.7"]}, {"allowOut": ["example.com"], **ALL}):
        refused = api.post("/sandboxes", json={"templateID": snapshot, "network": wider})
        assert refused.status_code == 403
        assert "the network of a sandbox from this snapshot is the snapshot's" in refused.json()["message"]
    assert isinstance(network(made(api, "base", network={"allowOut": ["example.com"], **ALL})), Policy)

    Teams.set_ceiling("reef", Policy.allow("example.com"))
    assert api.put(f"/sandboxes/{parent}/network", json={}).status_code == 204
    assert network(parent) == "internet"
    with Sandbox.connect(parent, wake=False) as sandbox:
        assert not sandbox.egress.test("GET", "https://example.com/").ceiling  # wherever the name leads
        assert sandbox.egress.test("GET", "https://example.org/").ceiling
        assert sandbox.exec(["getent", "hosts", "example.org"]).exit_code != 0
        assert any(one.ceiling and one.host == "example.org" for one in sandbox.egress.decisions())
