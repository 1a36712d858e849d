"""Requests that name themselves by a key: a repeated one gets the sandbox of the first."""

from __future__ import annotations

import asyncio

import pytest

from atoll.protocol import REQUEST_HEADER
from tests.unit.supervisor.harness import Harness, with_harness

KEY = {"idempotency_key": "job-42"}


@with_harness
async def test_the_same_request_gets_the_same_sandbox_while_it_lives(harness: Harness) -> None:
    first = await harness.create(**KEY, env={"A": "1", "B": "2"})
    again = await harness.create(**KEY, env={"B": "2", "A": "1"})
    assert again["sandbox_id"] == first["sandbox_id"]
    assert len(harness.system.inventory.sandboxes()) == 1
    await harness.ask("DELETE", f"/v1/sandboxes/{first['sandbox_id']}")
    other = await harness.create(**KEY, env={"A": "1", "B": "2"})
    assert other["sandbox_id"] != first["sandbox_id"]


@with_harness
async def test_a_name_that_the_first_one_has_is_not_taken_for_its_repetition(harness: Harness) -> None:
    first = await harness.create(**KEY, name="work")
    await harness.asleep(first)
    again = await harness.create(**KEY, name="work")
    assert (again["sandbox_id"], again["state"]) == (first["sandbox_id"], "suspended")


@with_harness
async def test_another_request_under_the_key_is_refused(harness: Harness) -> None:
    first = await harness.create(**KEY)
    answer = await harness.ask("POST", "/v1/sandboxes", {**KEY, "env": {"A": "1"}})
    assert (answer.status, answer.json["code"]) == (400, "invalid_spec")
    assert answer.json["sandbox_id"] == first["sandbox_id"]
    assert "another request" in answer.json["message"]


@with_harness
async def test_a_key_is_of_its_team(harness: Harness) -> None:
    for name in ("reef", "cove"):
        assert (await harness.ask("POST", "/v1/teams", {"name": name})).status == 200
    made = [await harness.create(**KEY, **team) for team in ({}, {"team": "reef"}, {"team": "cove"})]
    assert len({one["sandbox_id"] for one in made}) == 3
    assert (await harness.create(**KEY, team="reef"))["sandbox_id"] == made[1]["sandbox_id"]


@with_harness
async def test_requests_at_the_same_time_make_one_sandbox(harness: Harness) -> None:
    made = await asyncio.gather(*(harness.create(**KEY) for _ in range(5)), harness.create())
    assert len({one["sandbox_id"] for one in made[:5]}) == 1
    assert len(harness.system.inventory.sandboxes()) == 2


@with_harness
async def test_a_request_that_failed_leaves_its_key_free(harness: Harness) -> None:
    answer = await harness.ask("POST", "/v1/sandboxes", {**KEY, "image": "nothing"})
    assert answer.status == 404
    await harness.create(**KEY)


@with_harness
async def test_a_repeated_request_does_not_get_what_is_killed_for_a_client_that_left(
    harness: Harness,
) -> None:
    going_on = harness.host.hold("start")
    going_on.clear()
    headers = {REQUEST_HEADER: "abc"}
    first = asyncio.ensure_future(harness.ask("POST", "/v1/sandboxes", KEY, headers))
    await harness.until(lambda: "start" in [call.method for call in harness.host.calls])
    undoing = asyncio.ensure_future(harness.ask("DELETE", "/v1/requests/abc"))
    second = asyncio.ensure_future(harness.create(**KEY))
    await asyncio.sleep(0)
    going_on.set()
    assert (await first).status == 409
    assert (await undoing).status == 204
    made = await second
    assert [one.sandbox_id for one in harness.system.inventory.sandboxes()] == [made["sandbox_id"]]


@with_harness
async def test_who_repeats_a_request_and_leaves_does_not_end_the_first_ones_sandbox(
    harness: Harness,
) -> None:
    first = await harness.create(**KEY)
    again = await harness.ask("POST", "/v1/sandboxes", KEY, {REQUEST_HEADER: "abc"})
    assert again.json["sandbox_id"] == first["sandbox_id"]
    assert (await harness.ask("DELETE", "/v1/requests/abc")).status == 204
    assert (await harness.ask("GET", f"/v1/sandboxes/{first['sandbox_id']}")).status == 200


@with_harness
async def test_a_new_supervisor_knows_the_keys(harness: Harness) -> None:
    first = await harness.create(**KEY)
    await harness.crash()
    await harness.start()
    assert (await harness.create(**KEY))["sandbox_id"] == first["sandbox_id"]


@with_harness
async def test_a_fork_does_not_answer_for_its_original(harness: Harness) -> None:
    first = await harness.create(**KEY)
    assert (await harness.ask("POST", f"/v1/sandboxes/{first['sandbox_id']}/fork", {})).status == 200
    await harness.ask("DELETE", f"/v1/sandboxes/{first['sandbox_id']}")
    forks = {one.sandbox_id for one in harness.system.inventory.sandboxes()}
    assert (await harness.create(**KEY))["sandbox_id"] not in forks


@with_harness
async def test_a_sandbox_of_a_snapshot_is_found_by_its_key_too(harness: Harness) -> None:
    made = await harness.create()
    snapshot = await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {"name": "ready"})
    assert snapshot.status == 200
    first = await harness.create(**KEY, from_snapshot="ready")
    assert (await harness.create(**KEY, from_snapshot="ready"))["sandbox_id"] == first["sandbox_id"]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", 5])
def test_a_key_that_is_none_is_refused(key: object) -> None:
    @with_harness
    async def refused(harness: Harness) -> None:
        assert (await harness.ask("POST", "/v1/sandboxes", {"idempotency_key": key})).status == 400

    refused()
