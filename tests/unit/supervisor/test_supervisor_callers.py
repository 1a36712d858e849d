"""Clients that go away before they have the sandboxes that they asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from atoll.errors import NameTakenError
from atoll.protocol import REQUEST_HEADER
from atoll.supervisor.api import ApiServer
from tests.unit.supervisor.harness import Harness, with_harness

TOKEN = {REQUEST_HEADER: "abc"}


@asynccontextmanager
async def served(harness: Harness) -> AsyncIterator[ApiServer]:
    """The harness's supervisor on its socket."""
    api = ApiServer(harness.home.api_socket, harness.app)
    api.start()
    try:
        yield api
    finally:
        await api.aclose()


def asked(harness: Harness, path: str, body: bytes, accept: str = "*/*") -> socket.socket:
    """A connection on which a request was sent, and whose answer nobody reads."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(harness.home.api_socket))
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def ids(harness: Harness) -> set[str]:
    return {sandbox.sandbox_id for sandbox in harness.system.inventory.sandboxes()}


def begun(harness: Harness, method: str, times: int = 1) -> bool:
    return [call.method for call in harness.host.calls].count(method) >= times


def is_free(harness: Harness, name: str) -> bool:
    try:
        with harness.system.inventory.reserve_sandbox_name(name):
            return True
    except NameTakenError:
        return False


async def is_quiet(harness: Harness, api: ApiServer) -> None:
    """Return when the supervisor has met the end of every connection, and nothing goes on any more."""
    await harness.until(lambda: not api.connections and not harness.system.tasks.busy)


@with_harness
async def test_a_client_that_leaves_while_its_sandbox_is_made_leaves_none(harness: Harness) -> None:
    for accept in ("*/*", "application/x-ndjson"):
        harness.host.calls.clear()
        going_on = harness.host.hold("start")
        going_on.clear()
        async with served(harness) as api:
            with asked(harness, "/v1/sandboxes", b'{"name": "leak"}', accept):
                await harness.until(lambda: begun(harness, "start"))
            await harness.until(lambda: not api.connections)
            going_on.set()
            await is_quiet(harness, api)
        assert ids(harness) == set()
        assert harness.links.open == {}
        await harness.ask("DELETE", f"/v1/sandboxes/{(await harness.create(name='leak'))['sandbox_id']}")


@with_harness
async def test_a_client_that_ends_with_its_answer_unread_leaves_none(harness: Harness) -> None:
    for accept in ("*/*", "application/x-ndjson"):
        async with served(harness) as api:
            with asked(harness, "/v1/sandboxes", b"{}", accept):
                await harness.until(
                    lambda: ids(harness) and not harness.system.tasks.busy and not api.requests
                )
            await is_quiet(harness, api)
        assert ids(harness) == set()


@with_harness
async def test_the_turn_of_the_loop_at_which_a_client_ends_does_not_matter(harness: Harness) -> None:
    going_on = harness.host.hold("start")
    async with served(harness) as api:
        for turns in range(40):
            going_on.clear()
            harness.host.calls.clear()
            with asked(harness, "/v1/sandboxes", b"{}"):
                await harness.until(lambda: begun(harness, "start"))
                going_on.set()
                for _ in range(turns):
                    await asyncio.sleep(0)
            await is_quiet(harness, api)
            assert ids(harness) == set(), turns


@with_harness
async def test_a_client_that_has_read_its_answer_keeps_its_sandbox(harness: Harness) -> None:
    for accept, end in (("*/*", b"}"), ("application/x-ndjson", b"0\r\n\r\n")):
        before = ids(harness)
        async with served(harness) as api:
            with asked(harness, "/v1/sandboxes", b"{}", accept) as connection:
                answer = b""
                while not answer.endswith(end):
                    answer += await asyncio.to_thread(connection.recv, 65536)
            await is_quiet(harness, api)
        assert len(ids(harness) - before) == 1


@with_harness
async def test_a_fork_that_nobody_waits_for_begins_no_further_copy_and_leaves_none(harness: Harness) -> None:
    made = await harness.create()
    going_on = harness.host.hold("start")
    async with served(harness) as api:
        with asked(harness, f"/v1/sandboxes/{made['sandbox_id']}/fork", b'{"count": 50}'):
            await harness.until(lambda: begun(harness, "start", 2))
        await harness.until(lambda: not api.connections)
        going_on.set()
        await is_quiet(harness, api)
    assert ids(harness) == {made["sandbox_id"]}
    assert not begun(harness, "start", 50)
    assert len(harness.links.open) == 1
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/fork", {"count": 2})).status == 200


@with_harness
async def test_an_image_goes_on_being_built_for_others_and_its_sandbox_is_not_made(harness: Harness) -> None:
    harness.images.have, harness.images.may_build = False, asyncio.Event()
    async with served(harness) as api:
        with asked(harness, "/v1/sandboxes", b'{"name": "leak"}'):
            await harness.until(lambda: harness.images.builds)
        await harness.until(lambda: is_free(harness, "leak"))
        assert harness.system.tasks.busy
        harness.images.may_build.set()
        await is_quiet(harness, api)
    assert harness.images.have
    assert ids(harness) == set()
    assert not begun(harness, "start")


@with_harness
async def test_what_was_made_for_a_request_is_killed_when_its_client_says_so(harness: Harness) -> None:
    made = (await harness.ask("POST", "/v1/sandboxes", {}, TOKEN)).json
    kept = await harness.create()
    forked = await harness.ask(
        "POST", f"/v1/sandboxes/{kept['sandbox_id']}/fork", {"count": 2}, {REQUEST_HEADER: "def"}
    )
    assert ids(harness) == {
        kept["sandbox_id"],
        made["sandbox_id"],
        *(one["sandbox_id"] for one in forked.json),
    }
    for _ in range(2):
        assert (await harness.ask("DELETE", "/v1/requests/abc")).status == 204
    assert made["sandbox_id"] not in ids(harness)
    await harness.ask("DELETE", "/v1/requests/def")
    assert ids(harness) == {kept["sandbox_id"]}


@with_harness
async def test_a_request_that_is_undone_while_it_goes_on_makes_nothing(harness: Harness) -> None:
    going_on = harness.host.hold("start")
    asking = asyncio.create_task(harness.ask("POST", "/v1/sandboxes", {}, TOKEN))
    await harness.until(lambda: begun(harness, "start"))
    undoing = asyncio.create_task(harness.ask("DELETE", "/v1/requests/abc"))
    await asyncio.sleep(0)
    going_on.set()
    assert (await undoing).status == 204
    assert ids(harness) == set()
    assert (await asking).status == 409


@with_harness
async def test_a_request_that_is_undone_before_it_comes_makes_nothing(harness: Harness) -> None:
    assert (await harness.ask("DELETE", "/v1/requests/abc")).status == 204
    assert (await harness.ask("POST", "/v1/sandboxes", {}, TOKEN)).status == 409
    assert ids(harness) == set()
    assert not begun(harness, "start")


@with_harness
async def test_requests_are_forgotten_after_a_minute_and_none_has_an_endless_name(harness: Harness) -> None:
    made = (await harness.ask("POST", "/v1/sandboxes", {}, TOKEN)).json
    harness.boot_s += 61
    await harness.ask("POST", "/v1/sandboxes", {}, {REQUEST_HEADER: "other"})
    await harness.ask("DELETE", "/v1/requests/abc")
    assert made["sandbox_id"] in ids(harness)
    for wrong in ("x" * 65, "y" * 1000):
        assert (await harness.ask("DELETE", f"/v1/requests/{wrong}")).status == 400
        assert (await harness.ask("POST", "/v1/sandboxes", {}, {REQUEST_HEADER: wrong})).status == 400
