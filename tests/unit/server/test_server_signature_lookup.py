"""Signed addresses that name no sandbox: found quickly, and not guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest

from atoll.server.gateway import signature_lookup
from atoll.server.gateway.rejections import Rejection
from atoll.server.gateway.signature_lookup import SignatureLookup
from atoll.server.gateway.signatures import sign
from atoll.server.tokens import Tokens
from atoll.types import SandboxInfo
from tests.unit.server.examples import sandbox

TOKENS = Tokens(b"s" * 32)


class Listing:
    def __init__(self) -> None:
        self.infos = [sandbox(1, team="reef"), sandbox(2)]
        self.asked = 0

    async def list(self, limit: int) -> AsyncIterator[SandboxInfo]:
        self.asked += 1
        for info in self.infos:
            yield info


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Listing:
    made = Listing()
    monkeypatch.setattr(signature_lookup, "AsyncSandbox", made)
    monkeypatch.setattr(signature_lookup, "_WRONG_RATE_S", 1e-6)
    return made


def asked(token: str) -> dict[str, Any]:
    query = {"path": "/a", "username": "me", "signature": sign("/a", "read", "me", token, "")}
    return {"method": "GET", "query_string": urlencode(query).encode()}


async def told(found: SignatureLookup, token: str) -> str | int:
    try:
        return (await found.target(asked(token))).sandbox_id
    except Rejection as rejection:
        return rejection.status


def test_the_sandbox_of_a_team_that_signed_is_found(listing: Listing) -> None:
    async def work() -> None:
        found = SignatureLookup(TOKENS)
        first, second = (info.sandbox_id for info in listing.infos)
        assert await told(found, TOKENS.access(first)) == first
        assert await told(found, TOKENS.access(second)) == 401
        listing.infos.append(sandbox(3, team="reef"))
        third = listing.infos[-1].sandbox_id
        assert await told(found, TOKENS.access(third)) == third

    asyncio.run(work())


def test_whoever_guesses_makes_no_lists_and_keeps_no_right_signature_out(listing: Listing) -> None:
    async def work() -> None:
        found, signer = SignatureLookup(TOKENS), listing.infos[0].sandbox_id
        answers = await asyncio.gather(*(told(found, f"guess {number}") for number in range(200)))
        assert (answers.count(401), answers.count(429)) == (50, 150)
        before = listing.asked
        assert await told(found, "guess") == 429
        assert listing.asked == before
        assert await told(found, TOKENS.access(signer)) == signer

    asyncio.run(work())
