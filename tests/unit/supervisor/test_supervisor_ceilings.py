"""Ceilings of teams, in a supervisor on fakes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from atoll.network import Grant
from atoll.policy import EVERYTHING
from atoll.types import EgressVerdict, Policy
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness

NARROW = {"rules": [{"hosts": ["a.example"]}]}
RULES = Policy.allow("a.example")


async def set_ceiling(harness: Harness, ceiling: object, team: str = "reef") -> Any:
    return await harness.ask("PUT", f"/v1/teams/{team}/ceiling", {"ceiling": ceiling})


def link_of(harness: Harness, made: Any) -> FakeLink:
    running: Any = harness.system.inventory.sandbox(made["sandbox_id"]).running
    assert isinstance(running.link, FakeLink)
    return running.link


@with_harness
async def test_a_ceiling_is_in_force_for_every_sandbox_of_the_team_at_once(harness: Harness) -> None:
    for team in ("reef", "other"):
        await harness.ask("POST", "/v1/teams", {"name": team})
    before = await harness.create(team="reef")
    others = [await harness.create(team="other"), await harness.create()]
    assert link_of(harness, before).ceiling is None
    told = await set_ceiling(harness, NARROW)
    assert (told.status, told.json["ceiling"]) == (200, NARROW)
    after = await harness.create(team="reef", network="none")
    assert link_of(harness, before).ceiling == link_of(harness, after).ceiling == RULES
    assert link_of(harness, after).policy == "none"
    assert [link_of(harness, each).ceiling for each in others] == [None, None]
    await set_ceiling(harness, "internet")
    assert link_of(harness, before).ceiling == EVERYTHING
    await set_ceiling(harness, None)
    assert link_of(harness, before).ceiling is None
    assert (await harness.ask("GET", "/v1/teams/reef")).json.get("ceiling") is None


@with_harness
async def test_a_sandbox_wakes_under_the_ceiling_of_now(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    await set_ceiling(harness, "internet")
    made = await harness.create(team="reef")
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.ask("POST", f"{one}/suspend")
    await set_ceiling(harness, NARROW)
    assert (await harness.ask("POST", f"{one}/resume", {})).status == 200
    assert link_of(harness, made).ceiling == RULES


@with_harness
async def test_a_ceiling_outlives_the_supervisor(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    made = await harness.create(team="reef")
    await set_ceiling(harness, NARROW)
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", "/v1/teams/reef")).json["ceiling"] == NARROW
    assert link_of(harness, made).ceiling == RULES


@with_harness
async def test_copies_have_the_policy_of_their_original_and_the_ceiling_of_now(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    made = await harness.create(team="reef", network=NARROW)
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json
    await set_ceiling(harness, "none")
    forks = (await harness.ask("POST", f"{one}/fork", {"count": 1})).json
    copy = await harness.create(from_snapshot=snapshot["snapshot_id"], team="reef")
    for child in (*forks, copy):
        assert child["network"] == NARROW
        assert link_of(harness, child).ceiling == Policy()


@with_harness
async def test_a_policy_is_tested_under_the_ceiling(harness: Harness) -> None:
    grants: list[Grant] = []

    class Judging:
        async def judge(self, grant: Grant, *_: object) -> EgressVerdict:
            grants.append(grant)
            return EgressVerdict(action="deny", ceiling=True)

        async def aclose(self, *, stay: bool) -> None:
            pass

    harness.system.egress._inspection = cast(Any, Judging())
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    made = await harness.create(team="reef")
    await set_ceiling(harness, NARROW)
    path = f"/v1/sandboxes/{made['sandbox_id']}/egress/test"

    async def tested(**more: object) -> Any:
        return (await harness.ask("POST", path, {"method": "", "url": "tcp://b.example:22", **more})).json

    assert (await tested())["ceiling"] is True
    await tested(network="none")
    assert [(grant.policy, grant.ceiling) for grant in grants] == [(EVERYTHING, RULES), (Policy(), RULES)]


@pytest.mark.parametrize(
    ("ceiling", "words"),
    [
        ("everything", "Invalid enum value 'everything'"),
        ({"mode": "observe"}, "cannot only observe"),
        ({"rules": [{"set_headers": {"x-a": "1"}}]}, "changes and limits"),
        ({"rules": [{"methods": ["GET"]}]}, "cannot look into requests"),
    ],
)
def test_a_ceiling_that_cannot_be_enforced_is_refused(ceiling: object, words: str) -> None:
    @with_harness
    async def refused(harness: Harness) -> None:
        await harness.ask("POST", "/v1/teams", {"name": "reef"})
        answer = await set_ceiling(harness, ceiling)
        assert answer.status in (400, 422, 501), answer.body
        assert words in answer.json["message"]
        assert (await harness.ask("GET", "/v1/teams/reef")).json.get("ceiling") is None

    refused()


@with_harness
async def test_a_team_that_is_missing_has_no_ceiling_to_set(harness: Harness) -> None:
    assert (await set_ceiling(harness, "none", team="nobody")).status == 404
