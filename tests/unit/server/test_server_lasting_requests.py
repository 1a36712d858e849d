"""What a key has open ends soon after the key: answers that go on, waits, and WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.errors import DeniedError, SupervisorError
from atoll.server.auth.access import Access
from atoll.server.auth.access_log import AccessLog, logged
from atoll.server.auth.lasting_requests import KeyEndedError, ending_with_key
from atoll.types import TeamInfo

KEY = "e2b_" + "a" * 40
LOOK_S = 0.01
PATIENCE_S = 5.0


class Supervisor:
    """What is asked whose a key is."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.asked = 0

    async def check(self, key: str) -> TeamInfo:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return TeamInfo(name="reef", created_at=1.0)


class Place:
    """A server with one application, and what it sent."""

    def __init__(self, tmp_path: Path) -> None:
        self.supervisor = Supervisor()
        self.access = Access(self.supervisor.check)
        self.log = AccessLog(tmp_path / "access.log")
        self.sent: list[Message] = []

    async def serve(self, app: ASGIApp, kind: str = "http") -> None:
        """Answer a request with the key, which is revoked when the application has let it in."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            await self.access.team_of({"x-api-key": KEY})
            self.supervisor.fault = self.supervisor.fault or DeniedError("the key is wrong")
            await app(scope, receive, send)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            self.sent.append(message)

        scope = {
            "type": kind,
            "method": "GET",
            "headers": [(b"x-api-key", KEY.encode())],
            "client": ("::1", 1),
        }
        served = logged(ending_with_key(guarded, self.access, LOOK_S), self.log)
        async with asyncio.timeout(PATIENCE_S):
            await served(scope, receive, send)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.log.close()


async def _silent(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def _answering(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.Event().wait()


async def _accepting(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    await asyncio.Event().wait()


@pytest.mark.anyio
async def test_an_answer_that_goes_on_is_broken_off(place: Place) -> None:
    with pytest.raises(KeyEndedError):
        await place.serve(_answering)
    assert len(place.sent) == 1


@pytest.mark.anyio
async def test_one_who_waits_for_an_answer_gets_a_refusal(place: Place) -> None:
    await place.serve(_silent)
    assert place.sent[0]["status"] == 401


@pytest.mark.anyio
async def test_a_websocket_is_closed(place: Place) -> None:
    await place.serve(_accepting, "websocket")
    assert [message["type"] for message in place.sent] == ["websocket.accept", "websocket.close"]
    assert place.sent[1]["code"] == 1008


@pytest.mark.anyio
async def test_a_supervisor_that_does_not_answer_ends_nothing(place: Place) -> None:
    async def unanswered(scope: Scope, receive: Receive, send: Send) -> None:
        place.supervisor.fault = SupervisorError("it is restarting")
        await asyncio.sleep(LOOK_S * 10)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    await place.serve(unanswered)
    assert place.sent[0]["status"] == 200


@pytest.mark.anyio
async def test_the_application_s_own_timeouts_are_its_own(place: Place) -> None:
    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await place.serve(late)
