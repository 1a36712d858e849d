from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.network import Began, Holding, ModelMessage, ModelTalk, Need


class Channel:
    def __init__(self, fails: bool = False) -> None:
        self.sent: list[Any] = []
        self.fails = fails

    def send(self, message: dict[str, Any]) -> None:
        if self.fails:
            raise OSError("it has ended")
        self.sent.append(message)

    def send_document(self, message: dict[str, Any], document: object) -> None:
        self.send({**message, "document": document})


class Listener:
    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []

    def heard(self, message: ModelMessage) -> None:
        self.messages.append(message)


class Given(msgspec.Struct):
    tokens: int = 5


HOLDS = {"op": "holds", "edge": "ab", "budgets": {"home": {"tokens": 3, "nanos": 4}}}


def test_each_edge_learns_the_models_and_is_heard_of_first() -> None:
    talk, channel, listener = ModelTalk(), Channel(), Listener()
    talk.listener = listener
    talk.offer({"providers": {}})
    talk.begun(channel, HOLDS)
    talk.handle({"op": "need", "id": 1, "budget": "home", "tokens": 2, "nanos": 9})
    assert channel.sent == [{"op": "models", "document": {"providers": {}}}]
    assert listener.messages == [
        Began(edge="ab", budgets={"home": Holding(tokens=3, nanos=4)}),
        Need(id=1, budget="home", tokens=2, nanos=9),
    ]
    talk.offer({"providers": {"openai": {}}})
    assert channel.sent[-1]["document"] == {"providers": {"openai": {}}}


def test_answers_go_to_the_edge_that_runs_and_to_no_other() -> None:
    talk, channel = ModelTalk(), Channel()
    talk.settled(1)
    talk.begun(channel, HOLDS)
    talk.allot(2, "home", Given())
    talk.settled(3)
    assert talk.give_back()
    talk.ended()
    assert not talk.give_back()
    talk.settled(4)
    assert channel.sent == [
        {"op": "allot", "id": 2, "budget": "home", "tokens": 5},
        {"op": "settled", "id": 3},
        {"op": "give_back"},
    ]


def test_an_edge_without_models_is_told_nothing_of_them() -> None:
    talk, channel = ModelTalk(), Channel()
    talk.offer({})
    talk.begun(channel, None)
    talk.settled(1)
    assert channel.sent == []


def test_an_edge_that_has_ended_stops_nobody() -> None:
    talk = ModelTalk()
    talk.begun(Channel(fails=True), HOLDS)
    talk.offer({})
    talk.settled(1)


def test_what_means_nothing_is_refused() -> None:
    talk, listener = ModelTalk(), Listener()
    talk.listener = listener
    with pytest.raises(OSError, match="what it holds of budgets means nothing"):
        talk.begun(Channel(), {"op": "holds", "edge": "ab", "budgets": 3})
    with pytest.raises(ValueError, match="missing required field `nanos`"):
        talk.handle({"op": "need", "id": 1, "budget": "home", "tokens": 2})
