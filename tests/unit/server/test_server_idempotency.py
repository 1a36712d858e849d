"""Requests that are sent again."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import patch

import pytest

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.attributes import IDEMPOTENCY
from atoll.server.e2b.creation import Creation
from atoll.server.e2b.idempotency import KEEP_S, Idempotency
from atoll.server.e2b.wire import Sandbox


class Maker:
    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()

    async def __call__(self) -> Sandbox:
        self.made += 1
        await self.go.wait()
        return Sandbox(template_id="t", sandbox_id=f"s{self.made}", client_id="c", envd_version="1")


def test_requests_with_one_key_make_one_sandbox_also_at_once() -> None:
    async def scenario() -> None:
        once, make = Idempotency(lambda: 0.0), Maker()
        asking = [asyncio.create_task(once.once("team", "k", "f", make)) for _ in range(5)]
        await asyncio.sleep(0)
        asking[0].cancel()  # who hangs up takes nothing from the others
        make.go.set()
        told = await asyncio.gather(*asking[1:])
        assert make.made == 1
        assert {one.sandbox_id for one in told} == {"s1"}
        assert (await once.once("team", "k", "f", make)).sandbox_id == "s1"
        assert (await once.once("other", "k", "f", make)).sandbox_id == "s2"

    asyncio.run(scenario())


def test_a_key_belongs_to_one_request() -> None:
    async def scenario() -> None:
        once, make = Idempotency(lambda: 0.0), Maker()
        make.go.set()
        await once.once("team", "k", "f", make)
        with pytest.raises(Refusal) as refused:
            await once.once("team", "k", "another", make)
        assert refused.value.status == 422

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["", "A", "a b", "a" * 256, "ü"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Refusal) as refused:
        asyncio.run(Idempotency(lambda: 0.0).once("team", key, "f", Maker()))
    assert refused.value.status == 400


def test_a_failure_is_not_remembered_and_a_day_later_nothing_is() -> None:
    now_s = 0.0

    async def fail() -> Sandbox:
        raise Refusal(429, "full")

    async def scenario() -> None:
        nonlocal now_s
        once, make = Idempotency(lambda: now_s), Maker()
        make.go.set()
        with pytest.raises(Refusal):
            await once.once("team", "k", "f", fail)
        assert (await once.once("team", "k", "f", make)).sandbox_id == "s1"
        now_s = 86_401.0
        assert (await once.once("team", "k", "f", make)).sandbox_id == "s2"

    asyncio.run(scenario())


def test_what_a_server_made_before_it_was_started_again_is_known_for_a_day_too() -> None:
    class Info:
        def __init__(self, age_s: float) -> None:
            self.sandbox_id = "s1"
            self.image = "base"
            self.ports = "open"
            self.attributes = {IDEMPOTENCY: "key fingerprint"}
            self.created_at = time.time() - age_s

    class Views:
        def created(self, sandbox_id: str, attributes: Any) -> str:
            return sandbox_id

    creation = Creation(Views(), Idempotency(time.monotonic))  # type: ignore[arg-type]
    found: Any
    for age_s, found in ((KEEP_S - 600, "s1"), (KEEP_S + 1, None)):

        async def those_there_are(team: str, age_s: float = age_s) -> list[Any]:
            return [Info(age_s)]

        with patch("atoll.server.e2b.creation.all_of", those_there_are):
            assert asyncio.run(creation._earlier("reef", "key fingerprint")) == found
