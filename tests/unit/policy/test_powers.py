"""What a sandbox could do at worst, from the facts that the supervisor has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.policy import PowerFacts, powers_of
from atoll.types import (
    Delegation,
    EgressPolicy,
    Inject,
    Lifecycle,
    Limits,
    ModelBudgetUse,
    Policy,
    Powers,
    Rule,
    SandboxInfo,
    Scope,
    SecretInfo,
    ServiceSpec,
    Unplugged,
    UpstreamProxy,
    VolumePower,
)

READING = "Requests that only read (GET, HEAD) still carry data out: in their addresses and headers."


def info(network: EgressPolicy = "none", **more: Any) -> SandboxInfo:
    given: dict[str, Any] = {
        "sandbox_id": "a" * 20, "name": "work", "image": "base", "state": "running", "created_at": 0.0,
        "changed_at": 0.0, "env": {}, "metadata": {}, "limits": Limits(), "user": "user", "cwd": "/",
    }  # fmt: skip
    return SandboxInfo(**{**given, **more}, network=network)


def secret(name: str, *hosts: str, canary: bool = False) -> SecretInfo:
    return SecretInfo(
        secret_id=f"sec_{name}", name=name, team=None, hosts=hosts, metadata={}, canary=canary, version=1,
        created_at=0.0, changed_at=0.0,
    )  # fmt: skip


def powers(network: EgressPolicy = "none", *, of: dict[str, Any] | None = None, **facts: Any) -> Powers:
    return powers_of(PowerFacts(info=info(network, **(of or {})), **facts))


def sending(name: str, *hosts: str, action: Any = "allow") -> Rule:
    return Rule(action=action, hosts=hosts, inject=(Inject(secret=name),))


def test_a_sandbox_without_network_has_nothing_to_look_at() -> None:
    found = powers()
    assert (found.reaches, found.warnings, found.anywhere, found.ceiling) == ((), (), False, None)


def test_models_are_told_with_every_limit_on_what_they_cost() -> None:
    budgets = [
        ModelBudgetUse(budget="sandbox:a", usd=5.0, tokens=1000),
        ModelBudgetUse(budget="home", per="total"),
        ModelBudgetUse(budget="delegation:dlg-1", usd=3.0),
        ModelBudgetUse(budget="key:key-1f", usd=4.0),
        ModelBudgetUse(budget="team:reef", per="total", tokens=9),
    ]
    assert powers(models=("cheap", "openai/*"), budgets=budgets).models == (
        "It uses cheap, openai/*.",
        "It and its copies spend at most $5.00 and 1,000 tokens a day.",
        "All under a delegation of its chain spend at most $3.00 a day.",
        "All that its API key has made spends at most $4.00 a day.",
        "Its team spends at most 9 tokens in all.",
    )
    assert powers(models=("cheap",)).models[1] == "Nothing limits what it spends on them."
    ended = Delegation(uid="d", issuer="i", created_at=0.0, expires_at=1.0)
    assert powers(of={"delegation": ended}, models=("cheap",), now_s=2.0).models == powers().models == ()


@pytest.mark.parametrize(
    ("network", "warnings"),
    [
        ("internet", []),
        ("web-read-only", [READING]),
        (
            Policy(mode="observe"),
            ["The policy only observes: everything public passes, and no rule asks or refuses."],
        ),
        (Policy(rules=(Rule(hosts=("a.b",)),)), []),
        (
            Policy(rules=(Rule(hosts=("a.b",)),), passthrough=("a.b",)),
            ["TLS to a.b is never opened: atoll sees no request in it, nor for which site."],
        ),
        (
            Policy(rules=(Policy.expose_host(80, 8080),)),
            ["Ports of the host's loopback interface are exposed to it: 80, 8080."],
        ),
        (
            Policy(rules=(Policy.expose_sandbox("db", 80),)),
            ["It reaches other sandboxes: through them it may do what they can do."],
        ),
        (
            Policy(rules=(Rule(addresses=("10.0.0.0/8",)),)),
            ["Ranges that are not public are opened to it: 10.0.0.0/8."],
        ),
        (
            Policy(
                rules=(Rule(hosts=("a.b",)),), proxy=UpstreamProxy(url="http://me:***@proxy.example:8080")
            ),
            [
                "The proxy proxy.example:8080 resolves names: it decides where they lead, also in its own network."
            ],
        ),
    ],
)
def test_what_to_look_at_in_a_network(network: EgressPolicy, warnings: list[str]) -> None:
    assert list(powers(network).warnings) == warnings


@pytest.mark.parametrize(
    ("rule", "anywhere"),
    [
        (Rule(), True),
        (Rule(hosts=("*",)), True),
        (Rule(hosts=("*.com",)), True),
        (Rule(hosts=("*.example.com",)), False),
        (Rule(addresses=("8.0.0.0/9",)), True),
        (Rule(addresses=("8.8.8.0/24",)), False),
        (Rule(addresses=("2600::/32",)), True),
        (Rule(addresses=("10.0.0.0/8",)), False),
        (Rule(hosts=("*",), addresses=("8.8.8.8",)), False),
        (Policy.expose_host(80), False),
    ],
)
def test_whether_it_reaches_what_anybody_may_own(rule: Rule, anywhere: bool) -> None:
    assert powers(Policy(rules=(rule,))).anywhere is anywhere


def test_a_secret_is_told_by_name_with_its_hosts_and_without_its_value() -> None:
    policy = Policy(rules=(sending("bank", "a.b", action="ask"), sending("Mail", "m.b", "*.n.b")))
    found = powers(policy, secrets=[secret("bank", "a.b"), secret("mail"), secret("unused")])
    assert [each.text for each in found.secrets] == [
        "Requests to a.b carry the secret bank, each approved by a person; it is bound to a.b.",
        "Requests to m.b, *.n.b carry the secret Mail, without asking; it is bound to no hosts.",
    ]
    assert found.warnings == (
        "The secret Mail is bound to no hosts: only the policy keeps it from others.",
        "The secret Mail goes to every name that *.n.b stands for.",
    )


def test_a_secret_beside_a_way_to_anywhere_is_told_first() -> None:
    policy = Policy(rules=(sending("bank", "a.b"), Rule(hosts=("*",))))
    found = powers(policy, secrets=[secret("bank", "a.b")])
    assert found.warnings == (
        "It reaches places that anybody may own, and uses the secret bank: what it reads can leave.",
    )


def test_the_laxest_rule_says_how_many_approve_a_secret() -> None:
    policy = Policy(rules=(sending("bank", "a.b", action="ask"), sending("bank", "c.d")))
    assert powers(policy, secrets=[secret("bank")]).secrets[0].approvals == 0


def test_a_canary_and_a_missing_secret_are_not_sent() -> None:
    policy = Policy(rules=(sending("fake", "a.b"), sending("gone", "a.c")))
    found = powers(policy, secrets=[secret("fake", canary=True)])
    assert [(each.name, each.usable) for each in found.secrets] == [("fake", False), ("gone", False)]
    assert (found.canaries, found.warnings) == (1, ())


def test_a_secret_that_the_ceiling_keeps_in_is_no_power() -> None:
    policy = Policy(rules=(sending("bank", "a.b"),))
    found = powers(policy, ceiling="none", secrets=[secret("bank")])
    assert (found.secrets, found.reaches, found.ceiling) == ((), (), ())


def test_a_ceiling_bounds_the_internet() -> None:
    found = powers("internet", ceiling=Policy(rules=(Rule(hosts=("a.b",)),)))
    assert [reach.hosts for reach in found.reaches] == [("a.b",)]
    assert not found.anywhere


def test_volumes_say_who_else_has_them() -> None:
    shared = VolumePower(path="/data", volume_id="v1", name="data", quota_mib=10, others=2)
    seen = VolumePower(path="/seen", volume_id="v2", name="seen", read_only=True, others=1)
    own = VolumePower(path="/own", volume_id="v3", name="own")
    found = powers(volumes=[shared, seen, own])
    assert [each.text for each in found.volumes] == [
        "It reads and writes the volume data at /data, up to 10 MiB; 2 other sandboxes mount it too.",
        "It reads the volume seen at /seen; 1 other sandbox mounts it too.",
        "It reads and writes the volume own at /own.",
    ]
    assert found.warnings == ("It writes to the volume data, which other sandboxes mount.",)


def test_ports_say_who_reaches_them() -> None:
    assert powers().ports_text == "No server shows its ports. The user of this machine reaches them."
    opened = powers(of={"team": "reef", "services": (ServiceSpec(name="web", command="x", port=8000),)})
    assert opened.ports_text == "Whoever knows its id reaches every port of it by a server, without a key."
    assert opened.listens == (8000,)
    assert len(opened.warnings) == 1
    closed = powers(of={"team": "reef", "ports": "closed"})
    assert (
        closed.ports_text
        == "By a server, only clients with its traffic token or a signed link reach its ports."
    )
    assert closed.warnings == ()


def test_how_long_it_runs_and_what_wakes_it() -> None:
    plain = powers()
    assert plain.runs == (
        "It has no lease: it runs until somebody ends it.",
        "It is never suspended for being idle.",
    )
    job = ServiceSpec(name="nightly", command="x", schedule="0 3 * * *")
    found = powers(
        of={
            "lifecycle": Lifecycle(ttl_s=600, on_expiry="stop", wake_on_data=True),
            "limits_in_force": Limits(lifetime_s=3600),
            "services": (job,),
        },
        idle_s=900,
    )
    assert found.runs == (
        "Each run lasts at most 600 s unless somebody extends it; then its processes end and its disk stays.",
        "It is killed 3600 s after its creation.",
        "After 900 s without activity it is suspended; a program that works keeps it awake.",
    )
    assert found.wakes == (
        "Any use wakes it, and so do times for which programs inside have asked.",
        "Data on a connection that it has opened wakes it.",
        "It wakes for its scheduled services: nightly (0 3 * * *).",
    )
    assert powers(of={"lifecycle": Lifecycle(auto_resume=False)}).wakes == ("Only a resume wakes it.",)
    assert powers(of={"ends_at": 9.0}).runs[0] == "Its lease has an end; then it is erased."


def test_who_holds_it() -> None:
    ask = Policy(rules=(Rule(action="ask", hosts=("a.b",)),))
    found = powers(ask, of={"team": "reef", "ports": "closed"}, ceiling="internet")
    first = "Every key of the team reef, by a server, and the user of this machine may run anything in it, read its "
    assert found.held_by == (
        f"{first}files, wake it, snapshot it and fork it.",
        "The same may change its policy within the team's ceiling, and a fork has the same powers.",
        "The same people answer when a rule asks.",
    )


def test_it_is_told_when_it_is_cut_off_now() -> None:
    assert powers(of={"unplugged": Unplugged(at=0.0, reason="x")}).unplugged


def test_powers_survive_json() -> None:
    found = powers("internet", ceiling="web-read-only", secrets=[secret("a")])
    assert msgspec.json.Decoder(Powers).decode(msgspec.json.encode(found)) == found


def test_a_delegation_takes_powers_away() -> None:
    network = Policy(rules=(sending("key", "api.x"), Rule(hosts=("docs.x",))))
    known = {"secrets": [secret("key", "api.x")], "now_s": 10.0}

    def under(*scopes: Scope, expires_at: float | None = None) -> Powers:
        delegation = Delegation(
            uid="dlg-a", parent_uid="dlg-b", issuer="k1", scopes=scopes, created_at=0.0, expires_at=expires_at
        )
        return powers(network, of={"delegation": delegation}, **known)

    assert [reach.hosts for reach in under("network", "secrets").reaches] == [("api.x",), ("docs.x",)]
    assert [reach.hosts for reach in under("network").reaches] == [("docs.x",)]
    assert under("network").secrets == ()
    assert under("secrets").reaches == ()
    assert under("network", "secrets", expires_at=10.0).reaches == ()
    assert any("nobody may fork it" in text for text in under("network").held_by)
    assert any("snapshot it and fork it" in text for text in under("fork").held_by)
