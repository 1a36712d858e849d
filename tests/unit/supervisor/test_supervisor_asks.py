"""Acts that wait for an answer: who hears of them, who may answer, and what is written down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from atoll.network import HeldRequest
from atoll.supervisor.api.asks import answerer
from atoll.supervisor.lifecycle.asks import LOCAL_USER, NOBODY, Asks, always_rule
from atoll.supervisor.state.ask_listeners import GAP_S, AskListeners
from atoll.types import Ask, AskTerms, Inject, Policy, Rule
from tests.unit.supervisor.harness import Harness, with_harness

RULE = Rule(name="pay", action="ask", hosts=("*.x",), inject=(Inject(secret="card"),), json={"to": ("a*",)})
HEADERS = {"content-type": "application/json"}
KEY_1 = {**HEADERS, "atoll-caller": "key%20key-1%20of%20acme"}
KEY_2 = {**HEADERS, "atoll-caller": "key%20key-2%20of%20acme"}


class FakeEdge:
    """Takes answers as the edge does, and tells at once how the request ended."""

    def __init__(self, asks: Asks) -> None:
        self.asks = asks
        self.answers: list[dict[str, Any]] = []
        self.answered = asyncio.Event()

    def answer(self, sandbox_id: str, answer: dict[str, Any]) -> None:
        self.answers.append({"sandbox": sandbox_id, **answer})
        outcome = "allowed" if answer["action"] == "allow" else "denied"
        self.asks.ended(answer["ask"], outcome, int(outcome == "allowed"))
        self.answered.set()


class FakeLimits:
    """Keeps the policies that are set."""

    def __init__(self) -> None:
        self.networks: list[Policy] = []

    async def change_network(self, sandbox: object, network: Policy, attributes: object) -> None:
        self.networks.append(network)


def held(sandbox_id: str, **more: Any) -> HeldRequest:
    values: dict[str, Any] = {
        "sandbox": sandbox_id, "ask": "a" * 16, "again": False, "at": 1.0, "deadline": 301.0, "rule": 0, "count": 1,
        "digest": "d" * 64, "scheme": "https", "method": "POST", "host": "api.x", "port": 443, "path": "/pay?n=1",
        "headers": [("accept", "*/*")], "headers_left_out": 0, "body_bytes": 4,
    }  # fmt: skip
    return HeldRequest(**{**values, **more})


@contextlib.contextmanager
def edge_of(harness: Harness) -> Iterator[FakeEdge]:
    """An edge, and somebody who listens."""
    asks = harness.system.asks
    edge = FakeEdge(asks)
    asks.inspection = cast(Any, edge)
    with asks.listeners.listening(None, None):
        yield edge


async def new(harness: Harness, **spec: Any) -> str:
    made = (await harness.ask("POST", "/v1/sandboxes", {"team": None, **spec}, HEADERS)).json
    return str(made["sandbox_id"])


async def answer(harness: Harness, headers: dict[str, str] = HEADERS, **body: Any) -> Any:
    return await harness.ask("POST", f"/v1/asks/{'a' * 16}/answer", {"digest": "d" * 64, **body}, headers)


async def acts(harness: Harness) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await harness.ask("GET", "/v1/audit?act=ask")).json["entries"]
    return found


@with_harness
async def test_a_held_request_is_shown_and_an_approval_reaches_the_edge(harness: Harness) -> None:
    ref = await new(harness, name="work")
    with edge_of(harness) as edge:
        edge.asks.held(held(ref), RULE, b"1234")
        listed = (await harness.ask("GET", "/v1/asks")).json["asks"]
        assert [(one["sandbox_name"], one["title"], one["rule"], "body" in one) for one in listed] == [
            ("work", "POST https://api.x/pay?n=1", "pay", False)
        ]
        assert (await harness.ask("GET", f"/v1/asks/{'a' * 16}")).json["body"] == "MTIzNA=="
        done = (await answer(harness, allow=True, for_s=60)).json
        assert (done["outcome"], done["passed"]) == ("allowed", 1)
        assert edge.answers == [
            {
                "sandbox": ref,
                "ask": "a" * 16,
                "digest": "d" * 64,
                "reason": "",
                "for_s": 60.0,
                "action": "allow",
            }
        ]
        assert (await harness.ask("GET", "/v1/asks")).json["asks"] == []
        late = await answer(harness, allow=False)
        assert (late.status, late.json["code"]) == (404, "ask_not_found")
    assert [one["act"] for one in await acts(harness)] == ["ask.begun", "ask.allowed"]
    assert (await acts(harness))[-1]["details"]["by"] == LOCAL_USER


@with_harness
async def test_a_denial_has_its_sentence_and_the_next_card_tells_of_it(harness: Harness) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        edge.asks.held(held(ref), RULE, b"1234")
        await answer(harness, KEY_1, allow=False, reason="Too much.")
        assert (edge.answers[0]["code"], edge.answers[0]["reason"]) == ("ask_denied", "Too much.")
        edge.asks.held(held(ref, ask="b" * 16, path="/pay?n=2"), RULE, b"1234")
        edge.asks.held(held(ref, ask="c" * 16, path="/other"), RULE, b"1234")
        cards = {one["ask_id"][0]: one for one in (await harness.ask("GET", "/v1/asks")).json["asks"]}
        past = cards["b"]["past"]
        assert [(one["outcome"], one["by"], one["reason"]) for one in past] == [
            ("denied", "key key-1", "Too much.")
        ]
        assert "past" not in cards["c"]


@with_harness
async def test_an_answer_to_other_bytes_does_not_count(harness: Harness) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        edge.asks.held(held(ref), RULE, b"1234")
        refused = await answer(harness, digest="e" * 64, allow=True)
        assert (refused.status, refused.json["code"]) == (409, "ask_answer")
        assert edge.answers == []
        assert len((await harness.ask("GET", "/v1/asks")).json["asks"]) == 1


@with_harness
async def test_nobody_who_listens_is_a_denial_at_once_unless_it_was_told_before(harness: Harness) -> None:
    ref = await new(harness)
    asks = harness.system.asks
    edge = FakeEdge(asks)
    asks.inspection = cast(Any, edge)
    harness.boot_s += GAP_S
    asks.held(held(ref), RULE, b"1234")
    assert (edge.answers[0]["code"], edge.answers[0]["reason"]) == ("ask_nobody", NOBODY)
    # A supervisor that has just started has no listeners yet.
    asks.held(held(ref, again=True), RULE, b"1234")
    assert len(edge.answers) == 1
    assert len((await harness.ask("GET", "/v1/asks")).json["asks"]) == 1
    ended = await harness.ask("POST", f"/v1/sandboxes/{ref}/asks", {"title": "May I?"}, HEADERS)
    assert (ended.json["outcome"], ended.json["reason"]) == ("denied", NOBODY)


@with_harness
async def test_two_approvals_need_two_who_approve(harness: Harness) -> None:
    ref = await new(harness)
    rule = msgspec.structs.replace(RULE, ask=AskTerms(approvals=2))
    with edge_of(harness) as edge:
        edge.asks.held(held(ref), rule, b"1234")
        first = (await answer(harness, KEY_1, allow=True)).json
        assert (first.get("outcome", "pending"), first["approved_by"]) == (
            "pending",
            ["key key-1"],
        )
        again = await answer(harness, KEY_1, allow=True)
        assert (again.status, again.json["code"]) == (409, "ask_answer")
        assert edge.answers == []
        assert (await answer(harness, KEY_2, allow=True)).json["outcome"] == "allowed"
    assert (await acts(harness))[-1]["details"]["approved_by"] == "key key-1, key key-2"


@with_harness
async def test_always_writes_a_rule_before_the_one_that_asks(harness: Harness) -> None:
    before = Rule(hosts=("other.x",))
    sandbox = harness.system.inventory.sandbox(await new(harness))
    await harness.system.inventory.change(sandbox, network=Policy(rules=(before, RULE)))
    with edge_of(harness) as edge:
        limits = FakeLimits()
        edge.asks.limits = cast(Any, limits)
        edge.asks.held(held(sandbox.sandbox_id, rule=1), RULE, b"1234")
        done = (await answer(harness, allow=True, always=True)).json
        assert done["outcome"] == "allowed"
        assert edge.answers[0]["for_s"] == 60.0
    written = Rule(
        name="pay, approved",
        hosts=("api.x",),
        ports=(443,),
        methods=("POST",),
        paths=("/pay",),
        inject=RULE.inject,
        json=RULE.json,
    )
    assert limits.networks == [Policy(rules=(before, written, RULE))]


@pytest.mark.parametrize(
    ("first", "second", "for_s", "writes"),
    [
        ({}, {"always": True}, 0.0, False),
        ({"always": True}, {}, 0.0, False),
        ({"for_s": 600}, {"always": True}, 600.0, False),
        ({"for_s": 600}, {"for_s": 60}, 60.0, False),
        ({"always": True}, {"always": True}, 60.0, True),
    ],
)
def test_two_approvals_are_for_what_both_agree_on(
    first: dict[str, Any], second: dict[str, Any], for_s: float, writes: bool
) -> None:
    @with_harness
    async def run(harness: Harness) -> None:
        rule = msgspec.structs.replace(RULE, ask=AskTerms(approvals=2))
        sandbox = harness.system.inventory.sandbox(await new(harness))
        await harness.system.inventory.change(sandbox, network=Policy(rules=(rule,)))
        with edge_of(harness) as edge:
            limits = FakeLimits()
            edge.asks.limits = cast(Any, limits)
            edge.asks.held(held(sandbox.sandbox_id, rule=0), rule, b"1234")
            await answer(harness, KEY_1, allow=True, **first)
            assert (await answer(harness, KEY_2, allow=True, **second)).json["outcome"] == "allowed"
            assert edge.answers[0]["for_s"] == for_s
        assert bool(limits.networks) == writes

    run()


@with_harness
async def test_a_question_waits_for_its_answer_its_deadline_or_the_end_of_its_client(
    harness: Harness,
) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        sandbox = harness.system.inventory.sandbox(ref)
        asking = asyncio.create_task(edge.asks.question(sandbox, "Drop the table?", "DROP TABLE a", 60))
        await asyncio.sleep(0)
        (card,) = edge.asks.table.pending()
        assert (card.kind, card.title, card.body) == ("question", "Drop the table?", b"DROP TABLE a")
        body = {"digest": card.digest, "allow": False, "reason": "No."}
        await harness.ask("POST", f"/v1/asks/{card.ask_id}/answer", body, HEADERS)
        ended = await asking
        assert (ended.outcome, ended.reason) == ("denied", "No.")
        assert (await edge.asks.question(sandbox, "Still?", "", 0.01)).outcome == "expired"
        asking = asyncio.create_task(edge.asks.question(sandbox, "And now?", "", 60))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert edge.asks.table.pending() == []
    assert [one["act"] for one in await acts(harness)][1::2] == ["ask.denied", "ask.expired", "ask.gone"]


@with_harness
async def test_what_the_edge_held_is_gone_with_it(harness: Harness) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        edge.asks.held(held(ref), RULE, b"1234")
        edge.asks.counted("a" * 16, 5)
        assert edge.asks.table.pending()[0].count == 5
        edge.asks.lost()
        assert edge.asks.table.pending() == []
        assert (await answer(harness, allow=True)).status == 404


@with_harness
async def test_a_flood_of_asks_does_not_fill_the_audit_log(harness: Harness) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        for number in range(1000):
            ask_id = f"{number:016x}"
            edge.asks.held(held(ref, ask=ask_id), RULE, b"1234")
            edge.asks.ended(ask_id, "gone", 0)
        assert len(edge.asks.table.pending()) == 0
    assert len(await acts(harness)) <= 210


BAD_ANSWERS: list[dict[str, Any]] = [
    {"allow": True, "for_s": -1},
    {"allow": True, "for_s": 86401},
    {"allow": False, "for_s": 5},
    {"allow": False, "always": True},
    {"allow": False, "reason": "a\nb"},
    {"allow": False, "reason": "\x1b[2J"},
    {"allow": False, "reason": "a" * 501},
    {"allow": "yes"},
]


@with_harness
async def test_an_answer_that_makes_no_sense_is_refused(harness: Harness) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        edge.asks.held(held(ref), RULE, b"1234")
        for body in BAD_ANSWERS:
            assert (await answer(harness, **body)).status == 400, body
        assert edge.answers == []


@with_harness
async def test_a_question_needs_one_plain_line(harness: Harness) -> None:
    ref = await new(harness)
    for title in ("", "  ", "a\nb", "a" * 201, "\x1b[2J"):
        asked = await harness.ask("POST", f"/v1/sandboxes/{ref}/asks", {"title": title}, HEADERS)
        assert asked.status == 400, title


def test_a_listener_hears_of_its_team_or_sandbox_and_may_come_back_for_a_while() -> None:
    now = [0.0]
    listeners = AskListeners(lambda: now[0])
    assert listeners.may_be_heard("acme", "s1")  # this supervisor has just begun
    now[0] = 10.0
    assert not listeners.may_be_heard("acme", "s1")
    with listeners.listening("acme", None):
        assert listeners.is_heard("acme", "s1")
        assert not listeners.is_heard("other", "s1")
        with listeners.listening(None, "s2"):
            assert listeners.is_heard("other", "s2")
    now[0] += GAP_S - 0.1
    assert not listeners.is_heard("acme", "s1")
    assert listeners.may_be_heard("acme", "s1")
    assert not listeners.may_be_heard("other", "s1")
    now[0] += 0.2
    assert not listeners.may_be_heard("acme", "s1")


@with_harness
async def test_whoever_was_there_just_before_has_a_while_to_come_back(harness: Harness) -> None:
    ref = await new(harness)
    with edge_of(harness) as edge:
        pass
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.supervisor.lifecycle.asks.GAP_S", 0.01)
        edge.asks.held(held(ref), RULE, b"1234")
        assert edge.answers == []
        await edge.answered.wait()
    assert edge.answers[0]["code"] == "ask_nobody"
    assert edge.asks.get("a" * 16).reason == NOBODY


def test_no_rule_stands_for_a_path_that_is_a_pattern() -> None:
    def ask(path: str) -> Ask:
        return Ask(
            ask_id="a", sandbox_id="s", kind="request", title="t", digest="d", at=0, deadline=1,
            scheme="https", method="GET", host="a.x", port=443, path=path,
        )  # fmt: skip

    assert always_rule(ask("/a/*"), RULE) is None
    assert always_rule(ask("*"), RULE) is None
    assert always_rule(ask("/a"), msgspec.structs.replace(RULE, action="deny", inject=())) is None
    assert (always_rule(ask("/a?b=*"), RULE) or RULE).paths == ("/a",)


def test_who_answers_is_a_key_or_whoever_has_this_home() -> None:
    assert answerer("key key-1 of acme") == "key key-1"
    assert answerer("key key-1 of acme, pid 7, user ada") == LOCAL_USER
    assert answerer("python, pid 7, user ada") == answerer(None) == LOCAL_USER
