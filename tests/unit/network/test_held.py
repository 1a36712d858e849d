from __future__ import annotations

import base64

import msgspec
import pytest

from atoll.network.held import MOST_BODY_BYTES, HeldRequest, HeldTalk
from atoll.types import Rule

RULE = Rule(name="pay", action="ask", hosts=("api.x",))
ASK = {
    "op": "ask", "sandbox": "s", "ask": "a1", "again": False, "at": 1.0, "deadline": 2.0, "rule": 0, "count": 1,
    "digest": "d", "scheme": "https", "method": "POST", "host": "api.x", "port": 443, "path": "/pay",
    "headers": [["a", "b"]], "headers_left_out": 0, "body_bytes": 5,
}  # fmt: skip


class _Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def held(self, request: HeldRequest, rule: Rule, body: bytes) -> None:
        self.heard.append(("held", request.ask, rule.name, body))

    def counted(self, ask_id: str, count: int) -> None:
        self.heard.append(("counted", ask_id, count))

    def ended(self, ask_id: str, outcome: str, passed: int) -> None:
        self.heard.append(("ended", ask_id, outcome, passed))

    def unanswered(self, ask_id: str, error: str) -> None:
        self.heard.append(("unanswered", ask_id, error))

    def lost(self) -> None:
        self.heard.append(("lost",))


def piece(offset: int, data: bytes, ask: str = "a1") -> dict[str, object]:
    part = base64.b64encode(data).decode()
    return {"op": "ask_body", "sandbox": "s", "ask": ask, "offset": offset, "part": part}


@pytest.fixture
def talk() -> HeldTalk:
    return HeldTalk(_Listener())


def heard(talk: HeldTalk) -> list[tuple[object, ...]]:
    assert isinstance(talk.listener, _Listener)
    return talk.listener.heard


def test_a_request_comes_with_its_body_in_pieces(talk: HeldTalk) -> None:
    for message in (piece(0, b"he"), piece(2, b"llo"), ASK):
        talk.handle(message, (RULE,))
    assert heard(talk) == [("held", "a1", "pay", b"hello")]


@pytest.mark.parametrize(
    "messages",
    [
        [ASK],
        [piece(0, b"he"), ASK],
        [piece(1, b"hello")],
        [piece(0, b"he"), piece(3, b"llo")],
        [piece(0, b"hello"), piece(5, b"!"), ASK],
        [piece(0, b"hello", "a2"), ASK],
        [{**piece(0, b""), "part": "no base64"}],
        [{**piece(0, b""), "part": None}],
        [piece(0, b"x" * MOST_BODY_BYTES), piece(MOST_BODY_BYTES, b"x")],
        [piece(0, b"hello"), {**ASK, "rule": 1}],
        [piece(0, b"hello"), {**ASK, "rule": -1}],
        [piece(0, b"hello"), {**ASK, "port": "443"}],
        [piece(0, b"hello"), {name: value for name, value in ASK.items() if name != "digest"}],
        [{"op": "asked", "sandbox": "s", "ask": "a1"}],
    ],
)
def test_what_makes_no_sense_is_a_fault_and_no_request(
    talk: HeldTalk, messages: list[dict[str, object]]
) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, msgspec.ValidationError)):
        for message in messages:
            talk.handle(message, (RULE,))
    assert heard(talk) == []


def test_counts_and_ends_are_passed_on(talk: HeldTalk) -> None:
    about = {"sandbox": "s", "ask": "a1"}
    talk.handle({"op": "ask_count", **about, "count": 3}, ())
    talk.handle({"op": "asked", **about, "outcome": "allowed", "passed": 1, "refused": 2}, ())
    talk.handle({"op": "unanswered", **about, "error": "x" * 1000}, ())
    talk.lost()
    assert heard(talk) == [
        ("counted", "a1", 3),
        ("ended", "a1", "allowed", 1),
        ("unanswered", "a1", "x" * 200),
        ("lost",),
    ]
