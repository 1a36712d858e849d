"""Who is let in, how often, and what is written down of it."""

from __future__ import annotations

import asyncio
import errno
import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from atoll.errors import DeniedError, InvalidSpecError
from atoll.server.auth.access import Access
from atoll.server.auth.access_log import AccessLog, logged, note
from atoll.server.auth.buckets import Buckets, retry_after
from atoll.server.e2b.answers import Refusal
from atoll.types import Quotas, TeamInfo
from atoll.types.internal import key_id_of

KEY = "e2b_" + "a" * 40


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


class Supervisor:
    """What is asked whose a key is."""

    def __init__(self, **quotas: Any) -> None:
        self.teams = {KEY: TeamInfo(name="reef", created_at=1.0, quotas=Quotas(**quotas))}
        self.asked = 0

    async def check(self, key: str) -> TeamInfo:
        self.asked += 1
        await asyncio.sleep(0)
        if key not in self.teams:
            raise DeniedError("the key is wrong")
        return self.teams[key]


async def status_of(access: Access, key: str = KEY) -> int:
    try:
        await access.team_of({"x-api-key": key})
    except Refusal as refusal:
        assert refusal.status == 401 or int(refusal.headers["Retry-After"]) >= 1
        return refusal.status
    return 200


def test_wrong_keys_that_come_at_once_do_not_all_reach_the_supervisor() -> None:
    async def work() -> None:
        supervisor = Supervisor()
        access = Access(supervisor.check, Clock())
        answers = await asyncio.gather(*(status_of(access, f"wrong{number}") for number in range(300)))
        assert (answers.count(401), answers.count(429), supervisor.asked) == (100, 200, 100)

    asyncio.run(work())


def test_a_right_key_that_comes_often_at_once_is_let_in() -> None:
    async def work() -> None:
        access = Access(Supervisor().check, Clock())
        answers = await asyncio.gather(*(status_of(access) for _ in range(300)))
        assert set(answers) == {200}
        assert [await status_of(access, "wrong") for _ in range(101)].count(429) == 1

    asyncio.run(work())


def test_requests_with_a_volume_s_token_count_to_its_team() -> None:
    async def work() -> None:
        supervisor = Supervisor(requests_s=0.3)
        asked: list[str] = []

        async def owner(volume_id: str) -> TeamInfo:
            asked.append(volume_id)
            await asyncio.sleep(0)
            return supervisor.teams[KEY]

        clock = Clock()
        access = Access(supervisor.check, clock, owner)
        assert [(await access.team_of_volume("one")).name, await status_of(access)] == ["reef", 200]
        both = await asyncio.gather(*(access.team_of_volume("two") for _ in range(2)), return_exceptions=True)
        assert [isinstance(one, Refusal) and one.status == 429 for one in both] == [False, True]
        assert await status_of(access) == 429
        clock.now_s += 10
        await access.team_of_volume("one")
        assert asked == ["one", "two", "one"]  # who was asked is known for 5 seconds

    asyncio.run(work())


def test_a_bucket_holds_its_burst_and_fills_at_its_rate() -> None:
    buckets = Buckets()
    assert [buckets.take("a", 2.0, 3.0, 10.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b", 2.0, 3.0, 10.0) == 0
    assert buckets.take("a", 2.0, 3.0, 10.25) == 0.25
    assert buckets.take("a", 2.0, 3.0, 10.5) == 0
    assert [buckets.take("a", 2.0, 3.0, 1e9) for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_clock_that_goes_back_gives_and_takes_nothing() -> None:
    buckets = Buckets()
    assert [buckets.take("a", 1.0, 1.0, at_s) for at_s in (10.0, 5.0, 5.5)] == [0, 1.0, 0.5]


def test_who_may_never_is_told_to_come_back_in_an_hour() -> None:
    assert Buckets().take("a", 0.0, 0.5, 1.0) == 3600
    assert retry_after(0.2) == {"Retry-After": "1"}
    assert retry_after(3.4) == {"Retry-After": "4"}


def test_only_so_many_names_are_remembered() -> None:
    buckets = Buckets(most=2)
    assert [buckets.take(name, 1.0, 1.0, 1.0) for name in "abcab"] == [0, 0, 0, 0, 0]
    assert buckets.take("b", 1.0, 1.0, 1.0) == 1.0


@pytest.mark.parametrize(
    "headers",
    [{"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer {KEY}"}],
)
def test_a_key_may_come_in_either_header(headers: dict[str, str]) -> None:
    access = Access(Supervisor().check, Clock())
    assert asyncio.run(access.team_of(headers)).name == "reef"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "a b"},
        {"x-api-key": "\udcff"},
        {"x-api-key": "a" * 201},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
    ],
)
def test_what_can_be_no_key_is_refused_unasked(headers: dict[str, str]) -> None:
    supervisor = Supervisor()
    with pytest.raises(Refusal, match="Invalid API key") as caught:
        asyncio.run(Access(supervisor.check, Clock()).team_of(headers))
    assert (caught.value.status, supervisor.asked) == (401, 0)


def test_many_requests_at_once_ask_once_and_a_revoked_key_ends_within_five_seconds() -> None:
    async def work() -> None:
        supervisor, clock = Supervisor(), Clock()
        access = Access(supervisor.check, clock)
        assert set(await asyncio.gather(*(status_of(access) for _ in range(50)))) == {200}
        assert supervisor.asked == 1
        supervisor.teams.clear()
        clock.now_s += 4.9
        assert await status_of(access) == 200
        clock.now_s += 0.2
        assert await status_of(access) == 401

    asyncio.run(work())


def test_a_team_asks_no_oftener_than_its_quota_says() -> None:
    async def work() -> None:
        supervisor, clock = Supervisor(requests_s=2), Clock()
        access = Access(supervisor.check, clock)
        assert [await status_of(access) for _ in range(22)] == [200] * 20 + [429] * 2
        clock.now_s += 1
        assert [await status_of(access) for _ in range(3)] == [200, 200, 429]

    asyncio.run(work())


def test_an_address_with_too_many_wrong_keys_is_heard_no_more_but_for_keys_that_were_right() -> None:
    async def work() -> None:
        supervisor, clock = Supervisor(), Clock()
        supervisor.teams["other"] = supervisor.teams[KEY]
        access = Access(supervisor.check, clock)
        assert await status_of(access) == 200
        found = [await status_of(access, f"wrong{number}") for number in range(105)]
        assert found == [401] * 100 + [429] * 5
        clock.now_s += 0.5
        asked = supervisor.asked
        assert [await status_of(access, "other"), await status_of(access)] == [429, 200]
        clock.now_s += 6
        assert [await status_of(access), await status_of(access, "other")] == [200, 200]
        assert supervisor.asked == asked + 2

    asyncio.run(work())


async def _asked(app: Any, path: str, *, peer: str = "192.0.2.7") -> int:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"signature=secret-signature",
        "headers": [(b"x-api-key", KEY.encode()), (b"x-access-token", b"secret-token")],
        "server": ("a", 1),
        "client": (peer, 2),
        "scheme": "http",
    }
    statuses = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0] if statuses else 0


def test_a_line_tells_who_asked_for_what_and_nothing_secret(tmp_path: Path) -> None:
    access = Access(Supervisor().check, Clock())

    async def endpoint(request: Request) -> Response:
        await access.team_of(request.headers)
        return PlainTextResponse("hello")

    log = AccessLog(tmp_path / "access.log")
    app = logged(Starlette(routes=[Route("/sandboxes/{id}", endpoint)]), log, lambda: 1.5)

    async def work() -> None:
        assert await asyncio.gather(*(_asked(app, f"/sandboxes/{name}") for name in "ab")) == [200, 200]
        assert await _asked(app, "/secret-path") == 404

    asyncio.run(work())
    log.close()
    path = tmp_path / "access.log"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    first, _, last = map(json.loads, text.splitlines())
    assert first.pop("ms") >= 0
    assert first == {
        "time": "1970-01-01T00:00:01.500+00:00",
        "team": "reef",
        "key_id": key_id_of(KEY),
        "method": "GET",
        "route": "/sandboxes/{id}",
        "sandbox_id": None,
        "status": 200,
        "bytes": 5,
        "peer": "192.0.2.7",
    }
    assert (last["status"], last["route"], last["team"]) == (404, None, None)
    assert "secret" not in text
    assert KEY not in text


def test_a_full_disk_costs_lines_and_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "access.log").symlink_to("/dev/full")
    with pytest.raises(InvalidSpecError, match="symbolic links"):
        AccessLog(tmp_path / "access.log")
    log = AccessLog(tmp_path / "other.log")
    cast(Any, log._file).stream.close()
    cast(Any, log._file).stream = Full()
    app = logged(Starlette(), log)
    assert asyncio.run(_asked(app, "/")) == 404
    assert asyncio.run(_asked(app, "/")) == 404
    assert len(caplog.records) == 1
    log.close()


def test_outside_of_a_request_nothing_is_noted() -> None:
    note().team = "reef"
    assert note().team is None
