"""Clients that go away before they have the sandboxes that they asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from atoll.protocol import REQUEST_HEADER
from atoll.supervisor.api import ApiServer
from tests.unit.supervisor.world import World, in_world

TOKEN = {REQUEST_HEADER: "abc"}


@asynccontextmanager
async def served(world: World) -> AsyncIterator[ApiServer]:
    """The world's supervisor on its socket."""
    api = ApiServer(world.home.api_socket, world.app)
    api.start()
    try:
        yield api
    finally:
        await api.aclose()


def asked(world: World, path: str, body: bytes, accept: str = "*/*") -> socket.socket:
    """A connection on which a request was sent, and whose answer nobody reads."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(world.home.api_socket))
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def ids(world: World) -> set[str]:
    return {sandbox.sandbox_id for sandbox in world.system.registry.sandboxes()}


def begun(world: World, method: str, times: int = 1) -> bool:
    return [call.method for call in world.host.calls].count(method) >= times


async def is_quiet(world: World, api: ApiServer) -> None:
    """Return when the supervisor has met the end of every connection, and nothing goes on any more."""
    await world.until(lambda: not api.connections and not world.system.tasks.busy)


@in_world
async def test_a_client_that_leaves_while_its_sandbox_is_made_leaves_none(world: World) -> None:
    for accept in ("*/*", "application/x-ndjson"):
        world.host.calls.clear()
        going_on = world.host.hold("start")
        going_on.clear()
        async with served(world) as api:
            with asked(world, "/v1/sandboxes", b'{"name": "leak"}', accept):
                await world.until(lambda: begun(world, "start"))
            await world.until(lambda: not api.connections)
            going_on.set()
            await is_quiet(world, api)
        assert ids(world) == set()
        assert world.links.open == {}
        await world.ask("DELETE", f"/v1/sandboxes/{(await world.create(name='leak'))['sandbox_id']}")


@in_world
async def test_a_client_that_ends_with_its_answer_unread_leaves_none(world: World) -> None:
    for accept in ("*/*", "application/x-ndjson"):
        async with served(world) as api:
            with asked(world, "/v1/sandboxes", b"{}", accept):
                await world.until(lambda: ids(world) and not world.system.tasks.busy and not api.requests)
            await is_quiet(world, api)
        assert ids(world) == set()


@in_world
async def test_the_turn_of_the_loop_at_which_a_client_ends_does_not_matter(world: World) -> None:
    going_on = world.host.hold("start")
    async with served(world) as api:
        for turns in range(40):
            going_on.clear()
            world.host.calls.clear()
            with asked(world, "/v1/sandboxes", b"{}"):
                await world.until(lambda: begun(world, "start"))
                going_on.set()
                for _ in range(turns):
                    await asyncio.sleep(0)
            await is_quiet(world, api)
            assert ids(world) == set(), turns


@in_world
async def test_a_client_that_has_read_its_answer_keeps_its_sandbox(world: World) -> None:
    for accept, end in (("*/*", b"}"), ("application/x-ndjson", b"0\r\n\r\n")):
        before = ids(world)
        async with served(world) as api:
            with asked(world, "/v1/sandboxes", b"{}", accept) as connection:
                answer = b""
                while not answer.endswith(end):
                    answer += await asyncio.to_thread(connection.recv, 65536)
            await is_quiet(world, api)
        assert len(ids(world) - before) == 1


@in_world
async def test_a_fork_that_nobody_waits_for_begins_no_further_copy_and_leaves_none(world: World) -> None:
    made = await world.create()
    going_on = world.host.hold("start")
    async with served(world) as api:
        with asked(world, f"/v1/sandboxes/{made['sandbox_id']}/fork", b'{"count": 50}'):
            await world.until(lambda: begun(world, "start", 2))
        await world.until(lambda: not api.connections)
        going_on.set()
        await is_quiet(world, api)
    assert ids(world) == {made["sandbox_id"]}
    assert not begun(world, "start", 50)
    assert len(world.links.open) == 1
    assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/fork", {"count": 2})).status == 200


@in_world
async def test_an_image_goes_on_being_built_for_others_and_its_sandbox_is_not_made(world: World) -> None:
    world.images.have, world.images.may_build = False, asyncio.Event()
    async with served(world) as api:
        with asked(world, "/v1/sandboxes", b'{"name": "leak"}'):
            await world.until(lambda: world.images.builds)
        await world.until(lambda: not api.connections)
        with world.system.registry.reserve_sandbox_name("leak"):
            assert world.system.tasks.busy
        world.images.may_build.set()
        await is_quiet(world, api)
    assert world.images.have
    assert ids(world) == set()
    assert not begun(world, "start")


@in_world
async def test_what_was_made_for_a_request_is_killed_when_its_client_says_so(world: World) -> None:
    made = (await world.ask("POST", "/v1/sandboxes", {}, TOKEN)).json
    kept = await world.create()
    forked = await world.ask(
        "POST", f"/v1/sandboxes/{kept['sandbox_id']}/fork", {"count": 2}, {REQUEST_HEADER: "def"}
    )
    assert ids(world) == {kept["sandbox_id"], made["sandbox_id"], *(one["sandbox_id"] for one in forked.json)}
    for _ in range(2):
        assert (await world.ask("DELETE", "/v1/requests/abc")).status == 204
    assert made["sandbox_id"] not in ids(world)
    await world.ask("DELETE", "/v1/requests/def")
    assert ids(world) == {kept["sandbox_id"]}


@in_world
async def test_a_request_that_is_undone_while_it_goes_on_makes_nothing(world: World) -> None:
    going_on = world.host.hold("start")
    asking = asyncio.create_task(world.ask("POST", "/v1/sandboxes", {}, TOKEN))
    await world.until(lambda: begun(world, "start"))
    undoing = asyncio.create_task(world.ask("DELETE", "/v1/requests/abc"))
    await asyncio.sleep(0)
    going_on.set()
    assert (await undoing).status == 204
    assert ids(world) == set()
    assert (await asking).status == 409


@in_world
async def test_a_request_that_is_undone_before_it_comes_makes_nothing(world: World) -> None:
    assert (await world.ask("DELETE", "/v1/requests/abc")).status == 204
    assert (await world.ask("POST", "/v1/sandboxes", {}, TOKEN)).status == 409
    assert ids(world) == set()
    assert not begun(world, "start")


@in_world
async def test_requests_are_forgotten_after_a_minute_and_none_has_an_endless_name(world: World) -> None:
    made = (await world.ask("POST", "/v1/sandboxes", {}, TOKEN)).json
    world.boot_s += 61
    await world.ask("POST", "/v1/sandboxes", {}, {REQUEST_HEADER: "other"})
    await world.ask("DELETE", "/v1/requests/abc")
    assert made["sandbox_id"] in ids(world)
    for wrong in ("x" * 65, "y" * 1000):
        assert (await world.ask("DELETE", f"/v1/requests/{wrong}")).status == 400
        assert (await world.ask("POST", "/v1/sandboxes", {}, {REQUEST_HEADER: wrong})).status == 400
