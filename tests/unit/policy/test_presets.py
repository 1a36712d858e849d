from __future__ import annotations

from typing import get_args

import pytest

from atoll.errors import InvalidSpecError
from atoll.policy import check_policy, policy_of
from atoll.types import Policy, Preset, Rule
from tests.unit.policy.reference import Judge, Verdict

REGISTRIES = ("b.example", "a.example")


def test_none_has_no_rule_and_so_allows_nothing() -> None:
    assert policy_of("none", REGISTRIES) == Policy()


def test_internet_has_no_rules_at_all() -> None:
    assert policy_of("internet", REGISTRIES) is None


def test_packages_reads_from_the_registries_and_nothing_else() -> None:
    policy = policy_of("packages", REGISTRIES)
    assert policy is not None
    (rule,) = policy.rules
    assert (rule.hosts, rule.methods, rule.protocol) == (("a.example", "b.example"), ("GET", "HEAD"), "http")
    judge = Judge(policy)
    assert judge.connection("a.example", "8.8.8.8", 443) == Verdict("inspect", kept=(0,))
    for name, port in (("c.example", 443), ("x.a.example", 443), ("a.example", 22), (None, 443)):
        assert judge.connection(name, "8.8.8.8", port).action == "deny"


def test_packages_without_registries_allows_nothing() -> None:
    assert policy_of("packages") == Policy()


def test_web_read_only_reads_from_every_public_name() -> None:
    policy = policy_of("web-read-only")
    assert policy is not None and policy.rules[0].methods == ("GET", "HEAD")
    judge = Judge(policy)
    assert judge.connection("a.example", "8.8.8.8", 443).action == "inspect"
    assert judge.connection("a.example", "10.0.0.1", 443).action == "deny"
    assert judge.connection("a.example", "8.8.8.8", 22).action == "deny"


@pytest.mark.parametrize("preset", get_args(Preset))
def test_every_preset_passes_the_checks(preset: Preset) -> None:
    check_policy(policy_of(preset, REGISTRIES) or Policy())


def test_a_policy_is_its_own() -> None:
    own = Policy(rules=(Rule(),))
    assert policy_of(own, REGISTRIES) is own


@pytest.mark.parametrize("network", ["", "Internet", "package", None, 1])
def test_what_is_neither_a_preset_nor_a_policy_is_refused(network: object) -> None:
    with pytest.raises(InvalidSpecError, match=r"network is .* \(give 'none', 'packages', "):
        policy_of(network)  # type: ignore[arg-type]
