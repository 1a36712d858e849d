"""Links get the policies of their sandboxes, with the secrets as they are now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.network import Grant, Kept
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.tenants.proxy_passwords import ProxyPasswords
from atoll.types import EgressVerdict, Inject, Policy, Quotas, Rule
from tests.unit.supervisor.fakes import FakeLink, FakeLinks
from tests.unit.supervisor.harness import Harness, with_harness

POLICY = Policy(rules=(Rule(hosts=("*.a.example",), inject=(Inject(secret="key"),)),))


class WatchedLink(FakeLink):
    """A link that keeps what the edge was told."""

    def __init__(self) -> None:
        super().__init__(FakeLinks(), "link1")
        self.grants: list[Grant] = []

    def inspect(self, inspection: object, sandbox_id: str, grant: Grant) -> None:
        self.grants.append(grant)


def row(**more: object) -> Any:
    values: dict[str, object] = {"sandbox_id": "s1", "team": None, "network": POLICY, "unplugged": None}
    return SimpleNamespace(**{**values, **more})


def control(harness: Harness, known: list[Any]) -> EgressControl:
    listed = [SimpleNamespace(sandbox_id=one.sandbox_id, row=one) for one in known]
    return EgressControl(
        registry=cast(Any, SimpleNamespace(sandboxes=lambda: listed)),
        teams=harness.system.teams,
        secrets=harness.system.secrets,
        passwords=ProxyPasswords(harness.system.secrets.vault),
        decisions=cast(Any, None),
        alarms=cast(Any, None),
        inspection=cast(Any, object()),
        registries=PackageRegistries(dict),
    )


@with_harness
async def test_a_secret_that_changes_reaches_a_sandbox_that_is_being_made_or_woken(harness: Harness) -> None:
    secrets = harness.system.secrets
    await secrets.create("key", "old value")
    egress, link = control(harness, []), WatchedLink()
    egress.govern(cast(Any, link), row())
    await secrets.update("key", value="new value")
    assert [grant.secrets for grant in link.grants] == [{"key": "old value"}, {"key": "new value"}]
    await secrets.delete("key")
    assert link.grants[-1].secrets == {}
    link.is_open = False
    await secrets.create("key", "another")
    assert link.grants[-1].secrets == {}


@with_harness
async def test_hosts_that_a_secret_is_bound_to_later_bind_what_runs_already(harness: Harness) -> None:
    secrets = harness.system.secrets
    await secrets.create("key", "value")
    egress, link = control(harness, [row()]), WatchedLink()
    egress.govern(cast(Any, link), row())
    assert link.grants[-1].bound == {}
    await secrets.update("key", hosts=["one.a.example"])
    assert link.grants[-1].bound == {"key": ("one.a.example",)}
    assert link.grants[-1].document()["bound"] == {"key": ["one.a.example"]}


@with_harness
async def test_a_secret_that_changes_brings_no_old_row_of_a_sandbox_back(harness: Harness) -> None:
    secrets = harness.system.secrets
    await secrets.create("key", "value")
    egress, link = control(harness, [row()]), WatchedLink()
    egress.govern(cast(Any, link), row(unplugged="it scans", network="none"))
    assert link.calls == ["cut"]
    await secrets.update("key", value="new value")
    assert link.calls == ["cut"]
    assert cast(object, link.policy) == POLICY


@with_harness
async def test_a_ceiling_that_changes_reaches_a_sandbox_that_is_being_made_or_woken(harness: Harness) -> None:
    teams = harness.system.teams
    await teams.create("reef", Quotas())
    egress, link, other = control(harness, []), WatchedLink(), WatchedLink()
    egress.govern(cast(Any, link), row(team="reef"))
    egress.govern(cast(Any, other), row(sandbox_id="s2"))
    await teams.set_ceiling("reef", "none")
    assert (link.ceiling, link.grants[-1].ceiling) == (Policy(), Policy())
    assert (other.ceiling, other.grants[-1].ceiling) == (None, None)


@with_harness
async def test_a_sandbox_whose_team_is_missing_reaches_nothing(harness: Harness) -> None:
    egress, link = control(harness, []), WatchedLink()
    egress.govern(cast(Any, link), row(team="gone", network="internet"))
    assert link.ceiling == Policy()


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([Rule(hosts=("a.example",), addresses=("10.1.0.0/16",))], "depends"),
        ([Rule(action="deny", addresses=("203.0.113.0/24",)), Rule(hosts=("a.example",))], "depends"),
        ([Rule(action="deny", addresses=("192.0.2.0/24",)), Rule(hosts=("a.example",))], "depends"),
        ([Rule(hosts=("a.example",), addresses=("10.0.0.0/8",)), Rule(hosts=("a.example",))], "allow"),
        ([Rule(hosts=("a.example",)), Rule(hosts=("b.example",), addresses=("10.0.0.0/8",))], "allow"),
        (
            [Rule(hosts=("a.example",)), Rule(hosts=("a.example",), ports=(22,), addresses=("10.0.0.0/8",))],
            "allow",
        ),
        ([Rule(action="deny", hosts=("a.example",)), Rule(addresses=("10.0.0.0/8",), hosts=("*",))], "deny"),
    ],
)
def test_a_test_of_a_name_says_where_its_address_decides(rules: list[Rule], action: str) -> None:
    @with_harness
    async def test(harness: Harness) -> None:
        egress = control(harness, [])
        told = await egress.judge(Policy(rules=tuple(rules)), None, {"scheme": "tcp"}, "a.example", 443)
        assert told.action == action
        assert ("depends on the address" in told.reason) == (action == "depends")

    test()


@with_harness
async def test_a_test_of_a_request_knows_the_secrets_that_there_are(harness: Harness) -> None:
    known: list[object] = []

    class Judging:
        async def judge(self, grant: Grant, _kept: Kept, _request: object) -> EgressVerdict:
            known.append(grant.secrets)
            return EgressVerdict(action="allow", reason="rule 1 decides")

    egress, secrets = control(harness, []), harness.system.secrets
    egress._inspection = cast(Any, Judging())
    await secrets.create("key", "value")
    await egress.judge(POLICY, None, {"scheme": "https"}, "one.a.example", 443)
    await secrets.delete("key")
    await egress.judge(POLICY, None, {"scheme": "https"}, "one.a.example", 443)
    assert known == [{"key": "value"}, {}]


@with_harness
async def test_a_plain_request_by_a_rule_of_a_name_is_judged_as_a_request(harness: Harness) -> None:
    asked: list[tuple[int, ...]] = []

    class Judging:
        async def judge(self, _grant: Grant, kept: Kept, _request: object) -> EgressVerdict:
            asked.append(kept.own)
            return EgressVerdict(action="deny", reason="the method is not in upper case")

    egress = control(harness, [])
    egress._inspection = cast(Any, Judging())
    policy = Policy(
        rules=(Rule(hosts=("b.example",)), Rule(hosts=("a.example",))), passthrough=("c.example",)
    )

    async def judged(scheme: str, host: str, wanted: Policy = policy) -> str:
        return (await egress.judge(wanted, None, {"scheme": scheme}, host, 80)).action

    assert await judged("http", "a.example") == "deny"
    assert await judged("https", "a.example") == "allow"
    assert await judged("http", "a.example", Policy.allow("a.example").with_rules()) == "deny"
    assert await judged("http", "192.0.2.7", Policy(rules=(Rule(addresses=("192.0.2.0/24",)),))) == "allow"
    assert (
        await judged("http", "a.example", Policy(rules=policy.rules, passthrough=("a.example",))) == "allow"
    )
    assert asked == [(1,), (0,)]
