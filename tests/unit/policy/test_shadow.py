from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from atoll.policy import check_policy, closed, plain, shadowed
from atoll.types import HOST_NAME, Policy, Rule
from tests.unit.policy.policies import DESTINATIONS, OPEN_RANGES, Destination, fits, rules

RANDOM = settings(deadline=None, derandomize=True, database=None, max_examples=250)


@pytest.mark.parametrize(
    ("early", "late"),
    [
        (Rule(), Rule(hosts=("a.example",))),
        (Rule(), Rule()),
        (Rule(hosts=("*",)), Rule(hosts=("a.example",))),
        (Rule(hosts=("*",)), Rule(action="deny", hosts=("*.evil.example",))),
        (Rule(hosts=("*",)), Rule(action="unplug", hosts=("evil.example",))),
        (Rule(hosts=("*.a.example",)), Rule(hosts=("x.a.example", "*.y.a.example"))),
        (Rule(hosts=("A.example.",)), Rule(hosts=("a.example",), ports=(443,))),
        (Rule(hosts=("a.example",), ports=("1-65535",)), Rule(hosts=("a.example",))),
        (Rule(ports=("1-100", "101-200")), Rule(ports=("50-150",))),
        (Rule(ports=(80, 443)), Rule(methods=("GET",))),
        (Rule(protocol="http"), Rule(hosts=("a.example",), methods=("POST",))),
        (Rule(hosts=("a.example",), set_headers={"x": "1"}), Rule(hosts=("a.example",), paths=("/x",))),
        (Rule(action="deny", addresses=("10.0.0.0/8",)), Rule(addresses=("10.1.0.0/16", "10.2.0.0/16"))),
        (
            Rule(addresses=("10.0.0.0/8",)),
            Rule(action="deny", hosts=("x.example",), addresses=("10.1.0.0/16",)),
        ),
        (Rule(action="deny"), Rule(addresses=("10.0.0.0/8",))),
        (Rule(action="deny", hosts=("*",)), Rule(hosts=(HOST_NAME,), ports=(80,))),
        (Rule(hosts=(HOST_NAME,)), Rule(action="deny", hosts=(HOST_NAME,))),
    ],
)
def test_a_rule_after_one_that_decides_all_of_it_can_never_match(early: Rule, late: Rule) -> None:
    unrelated = Rule(hosts=("unrelated.other",), ports=(7,))
    assert shadowed(Policy(rules=(unrelated, early, late))) == (2, 1)


def test_several_rules_together_can_decide_all_of_another() -> None:
    before = (Rule(hosts=("a.example",)), Rule(action="deny", hosts=("*.b.example",)))
    assert shadowed(Policy(rules=(*before, Rule(hosts=("a.example", "x.b.example"))))) == (2, 0)
    assert shadowed(Policy(rules=(*before, Rule(hosts=("a.example", "b.example"))))) is None
    ports = (Rule(ports=(80,)), Rule(ports=(443,)))
    assert shadowed(Policy(rules=(*ports, Rule(ports=(80, 443))))) == (2, 0)


@pytest.mark.parametrize(
    ("early", "late"),
    [
        (Rule(hosts=("a.example",)), Rule(hosts=("*",))),
        (Rule(hosts=("*",)), Rule()),
        (Rule(hosts=("*.a.example",)), Rule(hosts=("a.example",))),
        (Rule(hosts=("*.a.example",)), Rule(hosts=("evila.example",))),
        (Rule(hosts=("x.a.example",)), Rule(hosts=("*.a.example",))),
        (Rule(ports=("1-100",)), Rule(ports=("50-150",))),
        (Rule(ports=(443,)), Rule(methods=("GET",))),
        (Rule(methods=("GET",)), Rule(methods=("GET",))),
        (Rule(max_body_bytes=0), Rule(protocol="http")),
        (Rule(protocol="http"), Rule(ports=(443,))),
        (Rule(set_headers={"x": "1"}), Rule(ports=(443,))),
        (Rule(addresses=("8.0.0.0/8",)), Rule(hosts=("a.example",))),
        (Rule(addresses=("10.1.0.0/16",)), Rule(addresses=("10.0.0.0/8",))),
        (Rule(), Rule(addresses=("10.0.0.0/8",))),
        (Rule(), Rule(action="unplug", addresses=("8.0.0.0/5",))),
        (Rule(hosts=("*",)), Rule(hosts=(HOST_NAME,))),
        (Rule(hosts=("*.internal",)), Rule(hosts=(HOST_NAME,))),
    ],
)
def test_a_rule_that_still_matches_something_is_not_reported(early: Rule, late: Rule) -> None:
    assert shadowed(Policy(rules=(early, late))) is None


def test_a_thousand_rules_without_hosts_are_checked() -> None:
    policy = Policy(rules=tuple(Rule(addresses=(f"20.{at // 256}.{at % 256}.0/24",)) for at in range(1000)))
    check_policy(policy)
    assert shadowed(policy.with_rules(Rule(action="deny", addresses=("20.3.0.0/16",)))) == (769, 0)


def _of_http(policy: Policy, to: Destination, method: str) -> int | None:
    """The rule that decides about a request."""
    found = (
        number
        for number, rule in enumerate(policy.rules)
        if fits(rule, to) and (not rule.methods or method in rule.methods)
    )
    return next(found, None)


def _of_tcp(policy: Policy, to: Destination) -> int | None:
    """The rule that decides about a connection which is not HTTP."""
    found = (number for number, rule in enumerate(policy.rules) if fits(rule, to) and not rule.inspects)
    return next(found, None)


SHADOWED = st.builds(Policy, rules=st.lists(rules(OPEN_RANGES), min_size=2, max_size=6).map(tuple)).filter(
    lambda policy: shadowed(policy) is not None
)


@RANDOM
@given(SHADOWED, DESTINATIONS)
def test_a_rule_that_is_reported_decides_nothing(policy: Policy, to: Destination) -> None:
    late, early = shadowed(policy) or (0, 0)
    assert early < late
    rule = policy.rules[late]
    open_to_all = closed(plain(to.address)) is None and to.name != HOST_NAME
    # Of what is not public, and of the host itself, a rule without ranges may still refuse what all refuse.
    assume(open_to_all or rule.action == "allow" or (rule.addresses and to.name != HOST_NAME))
    assert _of_tcp(policy, to) != late
    for method in ("GET", "POST", "PUT"):
        assert _of_http(policy, to, method) != late


@RANDOM
@given(SHADOWED, DESTINATIONS)
def test_a_policy_without_the_rule_that_is_reported_allows_the_same(policy: Policy, to: Destination) -> None:
    late, _ = shadowed(policy) or (0, 0)
    without = Policy(rules=policy.rules[:late] + policy.rules[late + 1 :])

    def allows(of: Policy, number: int | None) -> bool:
        return number is not None and of.rules[number].action == "allow"

    if to.name != HOST_NAME and closed(plain(to.address)) is None:
        assert allows(policy, _of_tcp(policy, to)) == allows(without, _of_tcp(without, to))
        for method in ("GET", "PUT"):
            assert allows(policy, _of_http(policy, to, method)) == allows(
                without, _of_http(without, to, method)
            )
