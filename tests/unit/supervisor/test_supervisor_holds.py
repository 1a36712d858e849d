"""Sandboxes that clients hold: what becomes of one whose last client is gone."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import product
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from atoll.protocol import DialRequest
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import EgressVerdict
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of


@asynccontextmanager
async def _held(harness: Harness, made: Any, *, binds: bool = True) -> AsyncIterator[None]:
    """Hold a sandbox by a call, whose client dies at the end."""
    begun, gone, body = asyncio.Event(), asyncio.Event(), bytearray()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        body.extend(message.get("body", b""))
        if b"\n" in body:
            begun.set()

    path = f"/v1/sandboxes/{made['sandbox_id']}/hold"
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": f"binds={int(binds)}".encode(),
        "headers": [],
    }

    async def called() -> None:
        await harness.app(scope, receive, send)

    call = asyncio.create_task(called())
    await asyncio.wait_for(begun.wait(), 5)
    assert json.loads(body.split(b"\n")[0])["sandbox_id"] == made["sandbox_id"]
    try:
        yield
    finally:
        gone.set()
        with suppress(asyncio.CancelledError):  # the supervisor has crashed
            await call


def _sandbox(harness: Harness, made: Any) -> Sandbox:
    return harness.system.inventory.sandbox(made["sandbox_id"])


def _is_gone(harness: Harness, made: Any) -> bool:
    return made["sandbox_id"] not in [one.sandbox_id for one in harness.system.inventory.all()]


async def _left(harness: Harness, made: Any) -> Sandbox:
    sandbox = _sandbox(harness, made)
    await harness.until(lambda: sandbox.row.left_at is not None)
    return sandbox


@with_harness
async def test_one_that_was_left_behind_sleeps_after_a_minute_and_is_erased_an_hour_later(
    harness: Harness,
) -> None:
    made, other = await harness.create(name="work"), await harness.create()
    async with _held(harness, made):
        harness.boot_s += 4000
        assert _sandbox(harness, made).row.left_at is None
    sandbox = await _left(harness, made)
    told = (await harness.ask("GET", "/v1/sandboxes/work")).json
    assert told["erased_at"] == sandbox.row.erased_at
    harness.boot_s += 59
    await asyncio.sleep(0.05)
    assert sandbox.row.state == "running"
    harness.boot_s += 2
    await harness.until(lambda: sandbox.row.state == "suspended")
    assert (sandbox.row.sleep_cause, sandbox.row.has_memory) == ("left", True)
    assert harness.system.holds.waiting, "the supervisor must stay to erase it"
    harness.boot_s += 3590
    await asyncio.sleep(0.05)
    assert not _is_gone(harness, made)
    harness.boot_s += 10
    await harness.until(lambda: _is_gone(harness, made))
    await harness.create(name="work")
    assert _sandbox(harness, other).row.state == "running"


@with_harness
async def test_it_is_left_only_when_the_last_of_those_that_hold_it_is_gone(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made, binds=False):
        async with _held(harness, made):
            pass
        assert _sandbox(harness, made).row.left_at is None
    sandbox = await _left(harness, made)
    async with _held(harness, made, binds=False):  # another one has come in time
        assert sandbox.row.left_at is None
        harness.boot_s += 4000
        await asyncio.sleep(0.05)
        assert sandbox.row.state == "running"
    assert (await _left(harness, made)).row.is_bound


@with_harness
async def test_a_hold_that_binds_nothing_leaves_nothing_behind(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made, binds=False):
        pass
    harness.boot_s += 10_000
    await asyncio.sleep(0.05)
    assert _sandbox(harness, made).row.state == "running"
    assert _sandbox(harness, made).row.left_at is None


@with_harness
async def test_whoever_wakes_it_keeps_it(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made):
        pass
    sandbox = await _left(harness, made)
    harness.boot_s += 61
    await harness.until(lambda: sandbox.row.state == "suspended")
    await harness.system.wakes.use(sandbox)
    assert (sandbox.row.left_at, sandbox.row.is_bound) == (None, False)
    harness.boot_s += 10_000
    await asyncio.sleep(0.05)
    assert sandbox.row.state == "running"


async def _dialled(harness: Harness, made: Any) -> None:
    ours, theirs = socket.socketpair()
    request = DialRequest(sandbox=made["sandbox_id"], port=80)
    with ours, theirs, patch.object(FakeLink, "dial", AsyncMock(return_value=ours), create=True):
        await harness.system.dialling.dial(request)


async def _resumed(harness: Harness, made: Any) -> None:
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200


async def _rolled_back(harness: Harness, made: Any) -> None:
    path, snapshot = f"/v1/sandboxes/{made['sandbox_id']}", harness.system.inventory.snapshots()[0]
    answer = await harness.ask("POST", f"{path}/rollback", {"snapshot": snapshot.snapshot_id})
    assert answer.status == 200, answer.body


async def _kept_awake(harness: Harness, made: Any) -> None:
    await harness.system.idle.keep_awake(_sandbox(harness, made), 1)


@pytest.mark.parametrize(
    ("use", "order", "sleeps"),
    [
        *product([_dialled], ["use in the hold", "use, hold", "no hold"], [True, False]),
        *product([_resumed], ["use in the hold", "no hold"], [True, False]),
        *product([_rolled_back, _kept_awake], ["use in the hold"], [True]),
    ],
)
def test_whoever_uses_it_after_it_was_left_keeps_it(
    use: Callable[[Harness, Any], Awaitable[None]], order: str, sleeps: bool
) -> None:
    async def used(harness: Harness) -> None:
        made = await harness.create()
        assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})).status == 200
        async with _held(harness, made):
            pass
        sandbox = await _left(harness, made)
        if sleeps:
            harness.boot_s += 61
            await harness.until(lambda: sandbox.row.state == "suspended")
        if order in ("use, hold", "no hold"):
            await use(harness, made)
        if order != "no hold":  # `atoll exec` holds it, and connects to it at the same time
            async with _held(harness, made, binds=False):
                if order == "use in the hold":
                    await use(harness, made)
        await asyncio.sleep(0.05)
        assert (sandbox.row.left_at, sandbox.row.is_bound, sandbox.row.state) == (None, False, "running")
        harness.boot_s += 10_000
        await asyncio.sleep(0.05)
        assert sandbox.row.state == "running"

    with_harness(used)()


@with_harness
async def test_who_only_looks_at_one_that_was_left_does_not_keep_it(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made):
        pass
    sandbox = await _left(harness, made)
    async with _held(harness, made, binds=False):
        assert sandbox.row.left_at is None
    assert (await _left(harness, made)).row.is_bound


@with_harness
async def test_a_question_is_no_use_of_one_that_was_left(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made):
        pass
    sandbox = await _left(harness, made)
    one, left_boot_s = f"/v1/sandboxes/{made['sandbox_id']}", sandbox.row.left_boot_s
    for sleeps in (False, True):
        if sleeps:
            harness.boot_s += 61
            await harness.until(lambda: sandbox.row.state == "suspended")
        with patch.object(harness.system.idle, "used") as used:
            for path in _QUESTIONS:
                assert (await harness.ask("GET", f"{one}{path}")).status == 200, path
            for path in ("/v1/sandboxes", f"/v1/snapshots?sandbox={made['sandbox_id']}"):
                assert (await harness.ask("GET", path)).status == 200, path
            asked = {"method": "GET", "url": "https://example.com/"}
            with patch.object(EgressControl, "judge", AsyncMock(return_value=EgressVerdict(action="deny"))):
                assert (await harness.ask("POST", f"{one}/egress/test", asked)).status == 200
            used.assert_not_called()
        # Not `left_at`: the wall clock of the harness stands still while this one runs, and it is set right.
        assert (sandbox.row.left_boot_s, sandbox.row.is_bound) == (left_boot_s, True)
    assert sandbox.row.state == "suspended"


_QUESTIONS = [
    "",
    "/stats",
    "/stats/history",
    "/logs",
    "/services",
    "/powers",
    "/egress/decisions",
    "/egress/registries",
]


@with_harness
async def test_one_whose_client_has_come_back_ends_with_it_all_the_same(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made):
        pass
    await _left(harness, made)
    async with _held(harness, made, binds=False), _held(harness, made):
        await _dialled(harness, made)
    assert (await _left(harness, made)).row.is_bound


@with_harness
async def test_a_fork_is_bound_to_nobody_until_somebody_holds_it(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made):
        copies = (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/fork", {"count": 1})).json
        assert not _sandbox(harness, copies[0]).row.is_bound
        async with _held(harness, copies[0]):
            pass
        await _left(harness, copies[0])


@with_harness
async def test_the_deadlines_outlive_the_supervisor_and_a_client_may_come_back(harness: Harness) -> None:
    back, lost, left = [await harness.create() for _ in range(3)]
    async with _held(harness, left):
        pass
    before = (await _left(harness, left)).row.left_boot_s
    async with _held(harness, back), _held(harness, lost):
        harness.system.holds.close()  # what dies writes nothing about the calls that end with it
        await harness.crash()
        harness.boot_s += 30
        await harness.start()
    assert _sandbox(harness, left).row.left_boot_s == before
    assert _sandbox(harness, lost).row.left_boot_s == harness.boot_s
    async with _held(harness, back):
        harness.boot_s += 31
        await harness.until(lambda: _sandbox(harness, left).row.state == "suspended")
        assert _sandbox(harness, lost).row.state == "running"
        harness.boot_s += 30
        await harness.until(lambda: _sandbox(harness, lost).row.state == "suspended")
        assert _sandbox(harness, back).row.state == "running"


@with_harness
async def test_a_supervisor_that_ends_leaves_nothing_behind(harness: Harness) -> None:
    made = await harness.create()
    async with _held(harness, made):
        harness.system.holds.close()
        await harness.until(lambda: not _sandbox(harness, made).holders)
        assert _sandbox(harness, made).row.left_at is None


@with_harness_of(Settings(pool_size=0, idle_suspend_s=1))
async def test_the_homes_idle_time_does_not_hold_for_what_a_client_holds(harness: Harness) -> None:
    made, other = await harness.create(), await harness.create()
    async with _held(harness, made):

        async def idle_for(seconds: float) -> None:
            for _ in range(int(seconds * 4)):
                harness.boot_s += 0.25
                await asyncio.sleep(0.01)

        while _sandbox(harness, other).row.state == "running":
            await idle_for(1)
        assert _sandbox(harness, made).row.state == "running"


@with_harness
async def test_who_made_a_sandbox_is_told(harness: Harness) -> None:
    headers = {"atoll-caller": "run%C3%A9.py, pid 7, user ada", "content-type": "application/json"}
    made = (await harness.ask("POST", "/v1/sandboxes", {}, headers)).json
    assert made["made_by"] == "runé.py, pid 7, user ada"
    path = f"/v1/sandboxes/{made['sandbox_id']}/fork"
    copies = (await harness.ask("POST", path, {"count": 1}, {"atoll-caller": "key k1 of red"})).json
    assert copies[0]["made_by"] == "key k1 of red"
    assert (await harness.create()).get("made_by") is None
    long = (await harness.ask("POST", "/v1/sandboxes", {}, {"atoll-caller": "x" * 10_000})).json
    assert long["made_by"] == "x" * 200
