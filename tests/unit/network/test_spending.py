from __future__ import annotations

from typing import Any

from atoll.network.spending import Spending, Spent
from atoll.types import Policy, RateLimit, Rule

MAIL = Rule(hosts=("mail.example.com",), limit=RateLimit(requests=10, per_s=60, total_bytes=1000))
FREE = Rule(hosts=("free.example.com",))


def told(key: str, total_bytes: int = 0, *requests: tuple[int, int]) -> tuple[Spent]:
    return (Spent(key=key, total_bytes=total_bytes, requests=list(requests)),)


def document_of(spending: Spending, now_ms: int = 0) -> dict[str, Any]:
    (one,) = spending.document(now_ms)
    return one


def test_what_was_counted_is_told_to_the_next_edge() -> None:
    spending = Spending()
    spending.keep(Policy(rules=(FREE, MAIL)))
    key = document_of(spending)["key"]
    assert document_of(spending) == {"rule": 1, "key": key, "total_bytes": 0, "requests": []}
    spending.add(told(key, 300, (101_000, 2)), now_ms=100_500)
    spending.add(told(key, 500, (101_000, 3), (111_000, 1)), now_ms=110_500)
    wanted = {"rule": 1, "key": key, "total_bytes": 500, "requests": [(101_000, 3), (111_000, 1)]}
    assert document_of(spending, now_ms=120_000) == wanted


def test_what_is_told_again_or_late_counts_once() -> None:
    spending = Spending()
    spending.keep(Policy(rules=(MAIL,)))
    key = document_of(spending)["key"]
    for one in (told(key, 500, (1000, 5)), told(key, 20, (1000, 4)), told(key, 500, (1000, 5))):
        spending.add(one, now_ms=500)
    assert document_of(spending) == {"rule": 0, "key": key, "total_bytes": 500, "requests": [(1000, 5)]}


def test_a_rule_that_a_new_policy_keeps_goes_on_and_one_that_is_gone_begins_anew() -> None:
    spending = Spending()
    spending.keep(Policy(rules=(MAIL,)))
    key = document_of(spending)["key"]
    spending.add(told(key, 500))
    spending.keep(Policy(rules=(FREE, MAIL)))
    spending.add(told(key, 600))  # the edge counted it before it had the new policy
    assert document_of(spending) == {"rule": 1, "key": key, "total_bytes": 600, "requests": []}
    spending.keep(Policy(rules=(FREE,)))
    spending.add(told(key, 700))
    assert spending.document() == []
    spending.keep(Policy(rules=(MAIL,)))
    assert document_of(spending)["total_bytes"] == 0


def test_requests_are_forgotten_after_their_time_and_never_before() -> None:
    spending = Spending()
    spending.keep(Policy(rules=(MAIL,)))
    key = document_of(spending)["key"]
    spending.add(told(key, 0, (1000, 5)), now_ms=0)
    spending.add(told(key, 0, (60_000, 1)), now_ms=59_000)
    assert document_of(spending, 60_999)["requests"] == [(1000, 5), (60_000, 1)]
    assert document_of(spending, 61_000)["requests"] == [(60_000, 1)]
    spending.add(told(key, 0, (62_000, 1)), now_ms=61_500)
    assert b"5" not in spending.stored()


def test_what_names_no_rule_with_a_limit_counts_nothing() -> None:
    spending = Spending()
    spending.keep(Policy(rules=(FREE, MAIL)))
    spending.add(told("another", 5, (1000, 5)))
    assert document_of(spending)["total_bytes"] == 0
