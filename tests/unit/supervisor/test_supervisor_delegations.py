"""What sandboxes act under, in a supervisor on fakes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.errors import NoSpaceError
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.rows import DelegationRow
from atoll.supervisor.tenants.delegations import issuer_of
from atoll.types.internal import SCOPES
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of

ADA = {"atoll-caller": "run.py, pid 7, user ada"}
KEY = {"atoll-caller": "key key-1f of reef"}


async def made(harness: Harness, headers: dict[str, str] | None = None, **spec: object) -> Any:
    answer = await harness.ask("POST", "/v1/sandboxes", spec, headers or ADA)
    assert answer.status == 200, answer.body
    return answer.json


async def refused(harness: Harness, path: str, body: object, headers: dict[str, str] | None = None) -> str:
    answer = await harness.ask("POST", path, body, headers or ADA)
    assert answer.status in (400, 403), answer.body
    code: str = answer.json["code"]
    assert answer.status == (403 if code.startswith("delegation") else 400)
    return code


async def forked(harness: Harness, one: Any, **wanted: object) -> Any:
    answer = await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/fork", wanted, ADA)
    assert answer.status == 200, answer.body
    return answer.json


def link_of(harness: Harness, one: Any) -> FakeLink:
    running: Any = harness.system.inventory.sandbox(one["sandbox_id"]).running
    assert isinstance(running.link, FakeLink)
    return running.link


@pytest.mark.parametrize(
    ("caller", "issuer"),
    [
        ("run.py, pid 7, user ada", "user ada"),
        ("odd, user bo, pid 7, user ada", "user ada"),
        ("key key-1f of reef", "key-1f"),
        ("key x of reef", "user unknown"),
        ("anything", "user unknown"),
        (None, "user unknown"),
    ],
)
def test_an_issuer_is_a_key_or_a_user(caller: str | None, issuer: str) -> None:
    assert issuer_of(caller) == issuer


@with_harness
async def test_each_key_and_each_user_has_one_of_its_own_for_ever(harness: Harness) -> None:
    one, two, far = await made(harness), await made(harness), await made(harness, KEY)
    root = one["delegation"]
    assert root == {
        "uid": root["uid"],
        "parent_uid": None,
        "issuer": "user ada",
        "on_behalf_of": "",
        "audience": "home",
        "scopes": list(SCOPES),
        "created_at": root["created_at"],
        "expires_at": None,
        "models": None,
        "budgets": [],
    }
    assert two["delegation"] == root
    assert (far["delegation"]["issuer"], far["delegation"]["uid"] != root["uid"]) == ("key-1f", True)
    await harness.crash()
    await harness.start()
    assert (await made(harness))["delegation"] == root
    assert (await made(harness, KEY))["delegation"] == far["delegation"]


@with_harness
async def test_the_root_of_a_key_goes_with_the_key(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    key = (await harness.ask("POST", "/v1/keys", {"team": "reef", "name": "laptop"})).json["info"]["key_id"]
    one = await made(harness, {"atoll-caller": f"key {key} of reef"}, team="reef")
    await harness.ask("DELETE", f"/v1/sandboxes/{one['sandbox_id']}")
    assert [row.issuer for row in await harness.system.database.all(DelegationRow)] == [key]
    assert (await harness.ask("DELETE", "/v1/teams/reef")).status == 204
    assert await harness.system.database.all(DelegationRow) == []


@with_harness
async def test_a_copy_gets_a_child_and_only_ever_has_less(harness: Harness) -> None:
    one = await made(harness, delegation={"on_behalf_of": "Bo", "scopes": ["network", "fork"]})
    mine = one["delegation"]
    assert (mine["audience"], mine["scopes"]) == (one["sandbox_id"], ["network", "fork"])
    copies = await forked(harness, one, count=2)
    assert {copy["delegation"]["parent_uid"] for copy in copies} == {mine["uid"]}
    assert len({copy["delegation"]["uid"] for copy in copies}) == 2
    assert {copy["delegation"]["audience"] for copy in copies} == {copy["sandbox_id"] for copy in copies}
    assert copies[0]["delegation"]["on_behalf_of"] == "Bo"
    fork = f"/v1/sandboxes/{one['sandbox_id']}/fork"
    assert await refused(harness, fork, {"delegation": {"scopes": ["secrets"]}}) == "delegation"
    assert await refused(harness, fork, {"delegation": {"parent_uid": "dlg-x"}}) == "invalid_spec"
    (last,) = await forked(harness, one, delegation={"scopes": []})
    assert last["network"] == link_of(harness, last).policy == "none"
    assert await refused(harness, f"/v1/sandboxes/{last['sandbox_id']}/fork", {}) == "delegation"
    network = f"/v1/sandboxes/{last['sandbox_id']}/network"
    assert await refused(harness, network, {"network": "packages"}) == "delegation"
    await harness.crash()
    await harness.start()
    kept = (await harness.ask("GET", f"/v1/sandboxes/{last['sandbox_id']}")).json
    assert kept["delegation"] == last["delegation"]


@with_harness
async def test_a_sandbox_of_a_snapshot_has_no_more_than_the_snapshot(harness: Harness) -> None:
    one = await made(harness, delegation={"scopes": ["fork"], "on_behalf_of": "Bo"})
    await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": "kept"})
    await harness.ask("DELETE", f"/v1/sandboxes/{one['sandbox_id']}")
    two = await made(harness, from_snapshot="kept")
    assert two["delegation"]["parent_uid"] == one["delegation"]["uid"]
    assert (two["delegation"]["scopes"], two["network"]) == (["fork"], "none")
    asked: dict[str, Any] = {"from_snapshot": "kept", "delegation": {"parent_uid": one["delegation"]["uid"]}}
    assert (await made(harness, **asked))["delegation"]["parent_uid"] == one["delegation"]["uid"]
    asked = {"from_snapshot": "kept", "network": "internet"}
    assert await refused(harness, "/v1/sandboxes", asked) == "delegation"
    asked = {"from_snapshot": "kept", "delegation": {"parent_uid": "dlg-x"}}
    assert await refused(harness, "/v1/sandboxes", asked) == "delegation"
    # a root bounds nothing: whoever uses its snapshot has one as well
    await harness.ask(
        "POST", f"/v1/sandboxes/{(await made(harness))['sandbox_id']}/snapshots", {"name": "mine"}
    )
    assert (await made(harness, KEY, from_snapshot="mine"))["delegation"]["issuer"] == "key-1f"


@with_harness
async def test_another_team_sees_nothing_of_the_delegation_that_bounds_it(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    one = await made(harness, delegation={"scopes": ["fork"], "on_behalf_of": "Bo"})
    await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/snapshots", {"name": "kept"})
    far = (await made(harness, KEY, from_snapshot="kept", team="reef"))["delegation"]
    root = (await made(harness, KEY, team="reef"))["delegation"]
    assert (far["parent_uid"], far["on_behalf_of"], far["scopes"]) == (root["uid"], "", ["fork"])
    asked = {"team": "reef", "delegation": {"parent_uid": one["delegation"]["uid"]}}
    assert await refused(harness, "/v1/sandboxes", asked, KEY) == "delegation"


@with_harness
async def test_a_sandbox_can_act_under_a_child_of_anothers(harness: Harness) -> None:
    one = (await made(harness, delegation={"scopes": ["network"], "expires_in_s": 60}))["delegation"]
    two = (await made(harness, delegation={"parent_uid": one["uid"]}))["delegation"]
    assert (two["parent_uid"], two["scopes"]) == (one["uid"], ["network"])
    assert two["expires_at"] == one["expires_at"]
    wider = {"delegation": {"parent_uid": one["uid"], "scopes": ["fork"]}}
    assert await refused(harness, "/v1/sandboxes", wider) == "delegation"
    longer = {"delegation": {"parent_uid": one["uid"], "expires_in_s": 90}}
    assert await refused(harness, "/v1/sandboxes", longer) == "delegation"
    mine = (await made(harness))["delegation"]["uid"]
    assert (await made(harness, delegation={"parent_uid": mine}))["delegation"]["parent_uid"] == mine


@with_harness
async def test_volumes_and_secrets_need_their_scopes(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data"})
    await harness.ask("POST", "/v1/secrets", {"name": "s", "value": "v", "hosts": ["a.example"]})
    rule = {"hosts": ["a.example"], "inject": [{"secret": "s"}]}
    asked: dict[str, Any] = {"volumes": {"/data": "data"}, "delegation": {"scopes": ["network", "fork"]}}
    assert await refused(harness, "/v1/sandboxes", asked) == "delegation"
    asked = {"network": {"rules": [rule]}, "delegation": {"scopes": ["network"]}}
    assert await refused(harness, "/v1/sandboxes", asked) == "delegation"
    one = await made(harness, volumes={"/data": "data"})
    path = f"/v1/sandboxes/{one['sandbox_id']}"
    assert await refused(harness, f"{path}/fork", {"delegation": {"scopes": ["fork"]}}) == "delegation"


@with_harness
async def test_when_it_ends_the_sandbox_reaches_nothing_and_sleeps_for_good(harness: Harness) -> None:
    one = await made(harness, delegation={"expires_in_s": 50}, name="work")
    ref, link = one["sandbox_id"], link_of(harness, one)
    await harness.ask("POST", f"/v1/sandboxes/{ref}/snapshots", {"name": "kept"})
    sandbox = harness.system.inventory.sandbox(ref)
    assert link.policy == "internet"
    harness.now_s += 60
    path = f"/v1/sandboxes/{ref}"
    assert await refused(harness, f"{path}/wake", {}) == "delegation_expired"
    await harness.until(lambda: sandbox.row.state == "suspended")
    assert (link.policy, sandbox.row.sleep_cause) == ("none", "delegation")
    for verb, body in (("resume", {}), ("fork", {}), ("rollback", {"snapshot": "kept"})):
        assert await refused(harness, f"{path}/{verb}", body) == "delegation_expired"
    assert await refused(harness, "/v1/sandboxes", {"from_snapshot": "kept"}) == "delegation_expired"
    other = await made(harness)
    promote = f"/v1/sandboxes/{other['sandbox_id']}/promote"
    assert await refused(harness, promote, {"winner": ref}) == "delegation_expired"
    assert (await harness.ask("DELETE", path)).status == 204


@with_harness
async def test_a_supervisor_that_comes_back_ends_what_ended_meanwhile(harness: Harness) -> None:
    one = await made(harness, delegation={"expires_in_s": 50})
    link = link_of(harness, one)
    await harness.crash()
    harness.now_s += 60
    await harness.start()
    sandbox = harness.system.inventory.sandbox(one["sandbox_id"])
    await harness.until(lambda: sandbox.row.state == "suspended")
    assert link.policy == "none"


@with_harness
async def test_lines_of_the_audit_log_say_under_what_a_sandbox_acts(harness: Harness) -> None:
    spec = {"on_behalf_of": "Bo", "scopes": ["network", "fork"], "models": {"usd": 2.5}}
    one, other = await made(harness, delegation=spec), await made(harness)
    ref, uid = one["sandbox_id"], one["delegation"]["uid"]
    (copy,) = await forked(harness, one)
    await harness.ask("POST", f"/v1/sandboxes/{ref}/snapshots", {})
    await harness.ask("DELETE", f"/v1/sandboxes/{ref}", None, ADA)
    found = (await harness.ask("GET", f"/v1/audit?delegation={uid}")).json["entries"]
    assert [entry["act"] for entry in found] == [
        "sandbox.created",
        "sandboxes.create",
        "sandboxes.fork",
        "snapshot.created",
        "sandboxes.snapshots",
        "sandbox.killed",
        "sandboxes.delete",
    ]
    assert found[0]["details"]["for"] == "Bo"
    assert found[0]["details"]["parent"] == other["delegation"]["uid"]
    assert found[0]["details"]["scopes"] == "network fork"
    assert (found[0]["details"]["models_usd"], found[0]["details"]["models_per"]) == (2.5, "day")
    mine = copy["delegation"]["uid"]
    found = (await harness.ask("GET", f"/v1/audit?delegation={mine}")).json["entries"]
    assert [(entry["act"], entry["details"]["parent"]) for entry in found] == [("sandbox.copied", uid)]


@with_harness
async def test_a_sandbox_that_cannot_sleep_yet_reaches_nothing_meanwhile(harness: Harness) -> None:
    one = await made(harness, delegation={"expires_in_s": 50})
    sandbox, link = harness.system.inventory.sandbox(one["sandbox_id"]), link_of(harness, one)
    harness.host.fail_next("checkpoint", NoSpaceError("full"))
    harness.now_s += 60
    await harness.until(lambda: link.policy == "none")
    async with sandbox.lock:
        assert sandbox.row.state == "running"
    assert await refused(harness, f"/v1/sandboxes/{sandbox.sandbox_id}/wake", {}) == "delegation_expired"
    harness.boot_s += 11
    await harness.until(lambda: sandbox.row.state == "suspended")


@with_harness
async def test_a_sandbox_that_crashed_is_not_recovered_once_its_delegation_has_ended(
    harness: Harness,
) -> None:
    one = await made(harness, delegation={"expires_in_s": 50}, lifecycle={"auto_recover": True})
    sandbox = harness.system.inventory.sandbox(one["sandbox_id"])
    harness.system.recoveries.close()  # the test looks
    harness.machine_of(one["sandbox_id"]).crash()
    await harness.until(lambda: sandbox.row.state == "crashed")
    harness.now_s += 60
    harness.system.recoveries.look()
    assert not harness.system.recoveries.waiting
    assert (sandbox.row.state, sandbox.row.recovered) == ("crashed", None)


@with_harness
async def test_a_sleeper_whose_delegation_has_ended_wakes_by_nothing(harness: Harness) -> None:
    job = {"name": "job", "command": "true", "schedule": "* * * * *"}
    one = await made(harness, delegation={"expires_in_s": 50}, services=[job])
    await harness.asleep(one)
    sandbox = harness.system.inventory.sandbox(one["sandbox_id"])
    await harness.system.inventory.change(sandbox, wakes_at=harness.now_s + 200)
    assert harness.system.wake_timers.waiting
    assert harness.system.schedules.waiting
    harness.now_s += 60
    assert not harness.system.wake_timers.waiting
    assert not harness.system.schedules.waiting
    harness.now_s += 3600
    await asyncio.sleep(1.2)
    assert (sandbox.row.state, sandbox.row.runs) == ("suspended", {})


@with_harness_of(Settings(pool_size=1))
async def test_a_delegation_names_the_sandbox_that_a_warm_machine_has_become(harness: Harness) -> None:
    await made(harness)
    await harness.until(lambda: harness.system.pool.ids())
    (ready,) = harness.system.pool.ids()
    one = await made(harness, delegation={"on_behalf_of": "Ada"})
    assert (one["sandbox_id"], one["delegation"]["audience"]) == (ready, ready)
