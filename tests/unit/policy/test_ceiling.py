"""A policy under a team's ceiling: both judge, side by side."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.errors import InvalidSpecError
from atoll.policy import EVERYTHING, ceiling_of, check_ceiling
from atoll.types import HOST_NAME, Inject, Policy, RateLimit, Rule, UpstreamProxy
from tests.unit.policy.policies import ADDRESSES, DESTINATIONS, NAMES, POLICIES, Destination
from tests.unit.policy.reference import BoundedJudge, Judge, Verdict

PUBLIC = "8.8.8.8"
RANDOM = settings(deadline=None, derandomize=True, database=None, max_examples=120)
CEILINGS = POLICIES.map(lambda policy: Policy(rules=policy.rules, passthrough=policy.passthrough))


def under(ceiling: Policy, own: Policy | None, name: str | None, port: int = 443) -> Verdict:
    return BoundedJudge(own, ceiling).connection(name, PUBLIC, port)


def passes(verdict: Verdict) -> bool:
    return verdict.action in ("allow", "inspect")


@RANDOM
@given(POLICIES, CEILINGS, DESTINATIONS)
def test_what_passes_is_exactly_what_both_let_pass(own: Policy, ceiling: Policy, to: Destination) -> None:
    one, other = Judge(own).connection(*to), Judge(ceiling).connection(*to)
    both = BoundedJudge(own, ceiling).connection(*to)
    assert passes(both) == (passes(one) and passes(other))
    if passes(both):
        assert (both.kept or both.deciding, both.above) == (one.deciding, other.deciding)
        assert (both.action == "inspect") == ("inspect" in (one.action, other.action))
        assert not both.ceiling


@RANDOM
@given(POLICIES, CEILINGS, st.sampled_from(NAMES), st.sampled_from(ADDRESSES))
def test_a_name_is_resolved_only_if_both_know_it(
    own: Policy, ceiling: Policy, name: str, address: str
) -> None:
    both = BoundedJudge(own, ceiling)
    expected = Judge(own).name(name).action == Judge(ceiling).name(name).action == "allow"
    assert (both.name(name).action == "allow") == expected
    leads = Judge(own).knows_address(name, address) and Judge(ceiling).knows_address(name, address)
    assert both.knows_address(name, address) == leads
    assert both.looks_into(name) == (Judge(own).looks_into(name) or Judge(ceiling).looks_into(name))


def test_a_refusal_of_the_ceiling_says_so_with_its_rule() -> None:
    ceiling = Policy(rules=(Rule(action="deny", name="no mail", ports=(25,)), Rule(hosts=("*.example",))))
    assert under(ceiling, Policy.allow("a.example"), "a.example") == Verdict("allow", 0, above=(1,))
    assert under(ceiling, Policy.allow("*"), "a.example", 25) == Verdict(
        "deny", 0, reason="the team's ceiling: rule 1 (no mail) denies a.example:25", ceiling=True
    )
    assert (
        under(ceiling, Policy.allow("*"), "b.test").reason == "the team's ceiling: no rule allows b.test:443"
    )
    own = under(ceiling, Policy.allow("b.example"), "a.example", 25)
    assert own == Verdict("deny", reason="no rule allows a.example:25")


def test_without_rules_of_its_own_a_sandbox_has_those_of_the_ceiling() -> None:
    ceiling = Policy.allow("a.example")
    assert passes(under(ceiling, None, "a.example"))
    assert not passes(under(ceiling, None, "b.example"))
    assert not passes(under(ceiling, None, None))
    assert under(ceiling_of("internet"), None, "a.example") == Verdict("allow", 0, above=(0,))
    assert not passes(under(ceiling_of("none"), None, "a.example"))


def test_the_ceiling_of_the_internet_opens_no_range_and_no_port_of_the_host() -> None:
    corp = Policy(rules=(Rule(addresses=("10.1.0.0/16",)), Policy.expose_host(80)))
    assert Judge(corp).connection(None, "10.1.2.3", 80).action == "allow"
    both = BoundedJudge(corp, EVERYTHING)
    assert both.connection(None, "10.1.2.3", 80).ceiling
    assert both.connection(HOST_NAME, "127.0.0.1", 80).ceiling
    assert not passes(both.connection(HOST_NAME, "127.0.0.1", 80))


def test_a_ceiling_opens_sandboxes_by_their_names_alone() -> None:
    name, own = "db.sandbox.atoll.internal", Policy(rules=(Policy.expose_sandbox("db", 80),))
    assert not passes(BoundedJudge(own, EVERYTHING).connection(name, "127.0.0.1", 80))
    above = Policy(rules=(Rule(hosts=("*.sandbox.atoll.internal",)),))
    assert passes(BoundedJudge(own, above).connection(name, "127.0.0.1", 80))
    assert not passes(BoundedJudge(None, above).connection("web.example", "8.8.8.8", 80))


def test_passthrough_of_a_sandbox_does_not_shut_the_eyes_of_the_ceiling() -> None:
    ceiling = Policy(rules=(Rule(hosts=("*",), methods=("GET",)),))
    pinned = Policy(rules=(Rule(hosts=("a.example",)),), passthrough=("a.example",))
    assert under(ceiling, pinned, "a.example") == Verdict("inspect", kept=(0,), above=(0,))
    assert BoundedJudge(pinned, ceiling).looks_into("a.example")
    both_pinned = Policy(rules=(*ceiling.rules, Rule(hosts=("*",))), passthrough=("a.example",))
    assert under(both_pinned, pinned, "a.example") == Verdict("allow", 0, above=(1,))
    assert not BoundedJudge(pinned, both_pinned).looks_into("a.example")


def test_what_is_only_observed_is_let_through_no_further_than_the_ceiling() -> None:
    ceiling = Policy(rules=(Rule(hosts=("a.example",)), Rule(hosts=("b.example",), methods=("GET",))))
    observing = Policy(mode="observe")
    assert under(ceiling, observing, "a.example").observed
    assert under(ceiling, observing, "b.example") == Verdict("inspect", above=(1,))
    denied = under(ceiling, observing, "c.example")
    assert (denied.action, denied.observed, denied.ceiling) == ("deny", False, True)


@pytest.mark.parametrize("own", [None, Policy(), Policy.allow("*"), Policy(mode="observe")])
def test_a_ceiling_unplugs_whatever_the_policy_says(own: Policy | None) -> None:
    ceiling = Policy(rules=(Rule(action="unplug", hosts=("spy.example",)), Rule(hosts=("*",))))
    found = under(ceiling, own, "spy.example")
    assert (found.action, found.ceiling) == ("unplug", True)
    assert BoundedJudge(own, ceiling).name("spy.example").action == "unplug"


@pytest.mark.parametrize(
    ("ceiling", "words"),
    [
        (Policy(mode="observe"), "cannot only observe"),
        (Policy(proxy=UpstreamProxy(url="socks5://proxy.example:1080")), "has no proxy"),
        (Policy(rules=(Rule(set_headers={"x-a": "1"}),)), "rule 1: a ceiling changes and limits no requests"),
        (Policy(rules=(Rule(remove_headers=("x-a",)),)), "changes and limits"),
        (Policy(rules=(Rule(hosts=("a.example",), inject=(Inject(secret="s"),)),)), "changes and limits"),
        (Policy(rules=(Rule(name="slow", limit=RateLimit(bytes_s=1)),)), r"rule 1 \(slow\): a ceiling"),
        (Policy(rules=(Rule(action="ask", name="pay"),)), r"rule 1 \(pay\): a ceiling asks nobody"),
        (Policy(rules=(Rule(), Rule(ports=(22,)))), "rule 2 can never match"),
    ],
)
def test_a_ceiling_does_nothing_but_decide(ceiling: Policy, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        check_ceiling(ceiling)


def test_a_ceiling_may_judge_requests_and_unplug() -> None:
    check_ceiling(Policy(rules=(Rule(action="unplug", hosts=("a.example",)), Rule(methods=("GET",)))))
    check_ceiling(EVERYTHING)
