"""Lists of sandboxes as E2B's clients ask for them."""

from __future__ import annotations

import urllib.parse
from datetime import UTC, datetime

import pytest

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.listing import metadata_of, number_of, page_of, query_of
from atoll.server.e2b.views import moment
from atoll.types import SandboxInfo
from tests.unit.server.examples import sandbox


def ids(infos: list[SandboxInfo]) -> list[int]:
    return [int(info.sandbox_id[1:]) for info in infos]


def test_newest_come_first_unless_asked_otherwise_whatever_their_state() -> None:
    infos = [sandbox(1, state="suspended"), sandbox(3), sandbox(2, state="suspended")]
    assert ids(page_of(infos, query_of({}), limit=100).infos) == [3, 2, 1]
    assert ids(page_of(infos, query_of({"order": "asc"}), limit=100).infos) == [1, 2, 3]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_have_each_sandbox_once_even_when_many_started_at_one_moment(order: str) -> None:
    infos = [sandbox(number, started_at=1000.0 + number // 10) for number in range(57)]
    seen: list[int] = []
    token = ""
    while True:
        query = query_of({"order": order, "limit": "10", "nextToken": token})
        page = page_of(infos, query, limit=query.limit)
        assert page.running == 57
        seen += ids(page.infos)
        if page.token is None:
            break
        token = page.token
    assert sorted(seen) == list(range(57))
    assert len(seen) == 57


def test_what_starts_or_ends_between_two_pages_neither_repeats_nor_hides_others() -> None:
    infos = [sandbox(number) for number in range(6)]
    first = page_of(infos, query_of({}), limit=2)
    rest = [info for info in infos if info not in first.infos] + [sandbox(9)]
    second = page_of(rest, query_of({"nextToken": first.token or ""}), limit=10)
    assert ids(second.infos) == [3, 2, 1, 0]


def test_a_moment_that_a_client_was_told_finds_the_sandbox_that_started_then() -> None:
    infos = [sandbox(number, started_at=1763748123.1234567 + number) for number in range(3)]
    told = moment(infos[1].started_at).isoformat()
    page = page_of(infos, query_of({"startedAfter": told}), limit=100)
    assert ids(page.infos) == [2, 1]
    # the same, its plus sign not quoted, and in another zone
    assert ids(page_of(infos, query_of({"startedAfter": told.replace("+", " ")}), limit=9).infos) == [2, 1]


def test_states_labels_and_templates_are_filtered_by() -> None:
    infos = [
        sandbox(1, metadata={"user": "a", "x": "1"}),
        sandbox(2, metadata={"user": "b"}, state="suspended", attributes={"e2b_template": "t1"}),
        sandbox(3, metadata={"user": "a"}, attributes={"e2b_template": "t1", "e2b_alias": "web"}),
        sandbox(4, state="crashed"),
    ]

    def found(**asked: str) -> list[int]:
        return ids(page_of(infos, query_of(asked), limit=100).infos)

    assert found(metadata="user=a") == [3, 1]
    assert found(metadata="user=a&x=1") == [1]
    assert found(state="paused") == [4, 2]
    assert found(state="running,paused") == [4, 3, 2, 1]
    assert found(template="t1") == [3, 2]
    assert found(template="web") == [3]
    assert found(template="base") == [4, 1]


@pytest.mark.parametrize("value", ["a b", "a&b=c", "100%", "ü+/", "%25"])
def test_labels_arrive_as_the_python_and_javascript_clients_quote_them(value: str) -> None:
    once = urllib.parse.urlencode({urllib.parse.quote("k y"): urllib.parse.quote(value)})
    assert metadata_of(once) == {"k y": value}


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "1e3"},
        {"limit": "٣"},
        {"limit": "9" * 5000},
        {"order": "up"},
        {"state": "running,killed"},
        {"startedAfter": "yesterday"},
        {"startedAfter": "9" * 500},
        {"nextToken": "x"},
        {"nextToken": "MTIgYQ==="},
        {"nextToken": "LTEgYQ=="},
        {"metadata": "nothing"},
        {"metadata": "=x"},
        {"metadata": "a=b&" * 200},
    ],
)
def test_a_query_that_makes_no_sense_is_the_clients_fault(asked: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        query_of(asked)
    assert refused.value.status == 400


def test_numbers_are_bounded() -> None:
    assert number_of({}, "start", 7) == 7
    assert number_of({"start": "12"}, "start", 7) == 12
    for text in ("-1", "1.5", "NaN", "1_0", str(1 << 60)):
        with pytest.raises(Refusal):
            number_of({"start": text}, "start", 7)


def test_moments_are_told_to_the_microsecond() -> None:
    assert moment(1763748123.123456) == datetime(2025, 11, 21, 18, 2, 3, 123456, UTC)
