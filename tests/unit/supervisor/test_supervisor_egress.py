"""Links get the policies of their sandboxes, with the secrets as they are now."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.errors import EdgeError, InvalidSpecError, SecretNotFoundError, UnsupportedError
from atoll.network import Grant
from atoll.network.relay_calls import RelayError
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.tenants.proxy_passwords import ProxyPasswords
from atoll.types import Delegation, EgressVerdict, Inject, Policy, Quotas, Rule
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
    values |= {"delegation": None, "delegation_uid": None, "models": None}
    return SimpleNamespace(**{**values, **more})


def control(harness: Harness, known: list[Any]) -> EgressControl:
    listed = [SimpleNamespace(sandbox_id=one.sandbox_id, row=one) for one in known]
    return EgressControl(
        inventory=cast(Any, SimpleNamespace(sandboxes=lambda: listed)),
        teams=harness.system.teams,
        secrets=harness.system.secrets,
        passwords=ProxyPasswords(harness.system.secrets.vault),
        models=harness.system.models,
        decisions=cast(Any, None),
        alarms=cast(Any, None),
        inspection=cast(Any, object()),
        relay=cast(Any, None),
        registries=PackageRegistries(dict),
        clock=time.time,
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
async def test_what_a_delegation_does_not_allow_is_withheld_and_all_of_it_at_its_end(
    harness: Harness,
) -> None:
    await harness.system.secrets.create("key", "value")
    narrow = Delegation(uid="dlg-1", issuer="i", created_at=0, scopes=("network",))
    ended = Delegation(uid="dlg-2", issuer="i", created_at=0, expires_at=1)
    egress, link, other = control(harness, []), WatchedLink(), WatchedLink()
    egress.govern(cast(Any, link), row(delegation=narrow))
    assert (link.grants[-1].policy, link.grants[-1].secrets) == (POLICY, {})
    assert cast(object, link.policy) == POLICY
    egress.govern(cast(Any, other), row(sandbox_id="s2", delegation=ended))
    assert (other.grants, other.policy) == ([], "none")


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
async def test_every_secret_that_a_format_names_is_checked_bound_and_given(harness: Harness) -> None:
    secrets = harness.system.secrets
    await secrets.create("id", "first")
    inject = Inject(key="x-auth", format="{id}:{key}")
    both = Policy(rules=(Rule(hosts=("one.a.example",), inject=(inject,)),))
    egress, link = control(harness, []), WatchedLink()
    with pytest.raises(SecretNotFoundError, match="key"):
        await egress.check(both, None)
    await secrets.create("key", "second", hosts=["two.a.example"])
    with pytest.raises(InvalidSpecError, match="may not be sent to 'one.a.example'"):
        await egress.check(both, None)
    egress.govern(cast(Any, link), row(network=both))
    assert link.grants[-1].secrets == {"id": "first", "key": "second"}
    assert link.grants[-1].bound == {"key": ("two.a.example",)}


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


class Judging:
    """An edge that answers as it was told, and keeps what it was asked."""

    def __init__(self, *answers: EgressVerdict | None) -> None:
        self.answers = list(answers)
        self.grants: list[Grant | None] = []
        self.asked: list[Any] = []

    async def judge(self, grant: Grant | None, destination: object, _: object) -> EgressVerdict | None:
        self.grants.append(grant)
        self.asked.append(destination)
        return self.answers.pop(0)


class Resolving:
    """Resolves one name, and knows that one address is this host's own."""

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert message["op"] == "resolve"
        found = {"a.example": ["192.0.2.1", "192.0.2.2"], "192.0.2.2": ["192.0.2.2"]}.get(message["name"])
        if found is None:
            raise RelayError(f"{message['name']} cannot be resolved: NXDOMAIN")
        known = [{"address": each, "own": each == "192.0.2.2"} for each in found]
        return {"content": {"addresses": known}}


def judging(harness: Harness, *answers: EgressVerdict | None) -> tuple[EgressControl, Judging]:
    egress, edge = control(harness, []), Judging(*answers)
    egress._inspection = cast(Any, edge)
    egress._relay = cast(Any, Resolving())
    return egress, edge


ALLOWED = EgressVerdict(action="allow", rule=0)
TCP = {"scheme": "tcp"}


@with_harness
async def test_a_test_of_a_request_knows_the_secrets_that_there_are(harness: Harness) -> None:
    egress, edge = judging(harness, ALLOWED, ALLOWED)
    await harness.system.secrets.create("key", "value")
    await egress.judge(POLICY, None, TCP, "192.0.2.2", 443)
    await harness.system.secrets.delete("key")
    await egress.judge(POLICY, None, TCP, "192.0.2.2", 443)
    assert [grant.secrets for grant in edge.grants if grant] == [{"key": "value"}, {}]


@with_harness
async def test_a_name_is_resolved_for_a_test_only_after_it_has_been_judged(harness: Harness) -> None:
    egress, edge = judging(harness, None, ALLOWED)
    assert await egress.judge(POLICY, None, TCP, "A.example.", 22) == ALLOWED
    known = [{"address": "192.0.2.1", "own": False}, {"address": "192.0.2.2", "own": True}]
    assert edge.asked == [
        {"name": "a.example", "port": 22, "addresses": addresses} for addresses in ([], known)
    ]
    assert edge.grants == [Grant(POLICY)] * 2
    egress, edge = judging(harness, EgressVerdict(action="deny", reason="no rule allows gone.example"))
    assert (await egress.judge(POLICY, None, TCP, "gone.example", 22)).action == "deny"
    assert len(edge.asked) == 1


@with_harness
async def test_a_name_that_does_not_resolve_is_denied_for_that_reason(harness: Harness) -> None:
    egress, _ = judging(harness, None)
    told = await egress.judge(POLICY, None, TCP, "gone.example", 22)
    assert (told.action, told.reason) == ("deny", "gone.example cannot be resolved: NXDOMAIN")


@with_harness
async def test_an_address_is_judged_as_it_is_and_without_rules_too(harness: Harness) -> None:
    egress, edge = judging(harness, ALLOWED)
    assert await egress.judge("internet", None, TCP, "192.0.2.2", 22) == ALLOWED
    assert edge.asked == [{"name": "", "port": 22, "addresses": [{"address": "192.0.2.2", "own": True}]}]
    assert edge.grants == [None]


@with_harness
async def test_an_edge_that_asks_for_addresses_again_gives_no_answer(harness: Harness) -> None:
    egress, _ = judging(harness, None, None)
    with pytest.raises(EdgeError, match="addresses that it has"):
        await egress.judge(POLICY, None, TCP, "a.example", 22)


@with_harness
async def test_nothing_is_judged_where_nothing_can(harness: Harness) -> None:
    egress = control(harness, [])
    egress._inspection = None
    with pytest.raises(UnsupportedError, match="cannot judge"):
        await egress.judge("internet", None, TCP, "a.example", 22)
