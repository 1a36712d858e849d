"""What clients of the remote API may write into a policy by an answer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from atoll.errors import AskNotFoundError, InvalidSpecError
from atoll.sdk import AsyncAsks
from atoll.server.remote import allowed
from atoll.server.remote.asked import Asked
from atoll.types import Ask, Policy, Rule, TeamInfo

RULE = Rule(action="ask", hosts=("api.x",))
ALWAYS = Rule(hosts=("api.x",), ports=(443,), paths=("/pay",))


class Team:
    name = "reef"


class FakeInfo:
    def __init__(self, network: object) -> None:
        self.network = network


class FakeAsked(Asked):
    network: object = Policy(rules=(RULE,))

    async def sandbox(self, ref: str) -> Any:
        return FakeInfo(self.network)


def ask(team: str | None = "reef", always: Rule | None = ALWAYS) -> Ask:
    return Ask(
        ask_id="a" * 16,
        sandbox_id="s",
        team=team,
        kind="request",
        title="",
        digest="d",
        at=1.0,
        deadline=2.0,
        rule="1",
        always=always,
    )


def answer(
    monkeypatch: pytest.MonkeyPatch,
    told: Ask,
    *,
    always: bool = True,
    is_free: bool = True,
    network: object = FakeAsked.network,
) -> None:
    async def get(ask_id: str) -> Ask:
        assert ask_id == told.ask_id
        return told

    async def may_get(info: FakeInfo, wanted: Policy) -> bool:
        assert wanted.rules == (ALWAYS, RULE)
        return is_free

    monkeypatch.setattr(AsyncAsks, "get", staticmethod(get))
    monkeypatch.setattr(allowed, "may_get", may_get)
    body = msgspec.json.encode({"digest": "d", "allow": True, "always": always})
    asked = FakeAsked(cast(TeamInfo, Team()), {"ask": told.ask_id}, {}, body)
    asked.network = network
    asyncio.run(allowed._ask_answer(asked))
    assert asked.body == body


def test_an_answer_writes_a_rule_that_the_client_could_write(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ask())
    answer(monkeypatch, ask(always=None))  # which the supervisor refuses
    answer(monkeypatch, ask(), network="internet")


def test_an_answer_writes_no_rule_for_another_team_nor_against_a_snapshot_nor_about_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for team in ("other", None):
        with pytest.raises(AskNotFoundError):
            answer(monkeypatch, ask(team))
    with pytest.raises(InvalidSpecError, match="that of its snapshot"):
        answer(monkeypatch, ask(), is_free=False)
    host = msgspec.structs.replace(ALWAYS, hosts=("host.atoll.internal",))
    with pytest.raises(InvalidSpecError, match="the server's own machine"):
        answer(monkeypatch, ask(always=host))
    answer(monkeypatch, ask("other"), always=False)  # the supervisor looks at the team
