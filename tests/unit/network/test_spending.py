from __future__ import annotations

from typing import Any

import pytest

from atoll.network.spending import Spending, Spent
from atoll.types import Policy, RateLimit, Rule

MAIL = Rule(hosts=("mail.example.com",), limit=RateLimit(requests=10, per_s=60, total_bytes=1000))
FREE = Rule(hosts=("free.example.com",))
SLOW = Rule(hosts=("slow.example.com",), limit=RateLimit(requests=1_000_000, per_s=86_400))


def told(rule: int, total_bytes: int = 0, requests: int = 0) -> tuple[Spent]:
    return (Spent(rule=rule, total_bytes=total_bytes, requests=requests),)


def of_rule(spending: Spending, rule: int, now_s: float = 0) -> dict[str, Any] | None:
    return next((one for one in spending.document(now_s) if one["rule"] == rule), None)


def test_what_was_counted_is_told_to_the_next_edge() -> None:
    spending = Spending()
    version = spending.keep(Policy(rules=(FREE, MAIL)))
    assert spending.document() == []
    spending.add(version, told(1, 300, 2), now_s=100)
    spending.add(version, told(1, 500, 1), now_s=110)
    assert of_rule(spending, 1, now_s=120) == {
        "rule": 1,
        "total_bytes": 500,
        "requests": [[19.0, 2], [9.0, 1]],
    }


def test_the_bytes_of_a_rule_never_become_fewer() -> None:
    spending = Spending()
    version = spending.keep(Policy(rules=(MAIL,)))
    spending.add(version, told(0, 500))
    spending.add(version, told(0, 20))
    assert spending.document()[0]["total_bytes"] == 500


def test_a_rule_that_a_new_policy_keeps_goes_on_and_one_that_is_gone_begins_anew() -> None:
    spending = Spending()
    first = spending.keep(Policy(rules=(MAIL,)))
    spending.add(first, told(0, 500))
    second = spending.keep(Policy(rules=(FREE, MAIL)))
    assert second != first
    # the edge counted it before it had the new policy
    spending.add(first, told(0, 600))
    assert of_rule(spending, 1) == {"rule": 1, "total_bytes": 600, "requests": []}
    spending.keep(Policy(rules=(FREE,)))
    spending.keep(Policy(rules=(FREE,)))
    spending.keep(Policy(rules=(MAIL,)))
    assert spending.document() == []


def test_requests_are_forgotten_after_their_time_and_never_before() -> None:
    spending = Spending()
    version = spending.keep(Policy(rules=(MAIL,)))
    spending.add(version, told(0, 0, 5), now_s=0)
    spending.add(version, told(0, 0, 1), now_s=59)
    assert sum(many for _, many in spending.document(59)[0]["requests"]) == 6
    spending.add(version, told(0, 0, 1), now_s=61)
    assert sum(many for _, many in spending.document(61)[0]["requests"]) == 2


def test_a_day_of_requests_is_kept_in_few_numbers() -> None:
    spending = Spending()
    version = spending.keep(Policy(rules=(SLOW,)))
    for now_s in range(0, 86_000, 10):
        spending.add(version, told(0, 0, 3), now_s=now_s)
    (document,) = spending.document(86_000)
    assert len(document["requests"]) <= 502
    assert sum(many for _, many in document["requests"]) == 8600 * 3
    assert all(ago >= 0 for ago, _ in document["requests"])


@pytest.mark.parametrize("rule", [-1, 0, 2, 1 << 40])
def test_what_names_no_rule_with_a_limit_counts_nothing(rule: int) -> None:
    spending = Spending()
    version = spending.keep(Policy(rules=(FREE, MAIL)))
    spending.add(version, told(rule, 5, 5))
    spending.add(version + 1, told(1, 5, 5))
    assert spending.document() == []
