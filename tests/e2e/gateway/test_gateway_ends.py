"""A kill, a sleep and a client that leaves, as the two ends of a request through `atoll serve` see them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import httpx
import pytest
from e2b import TimeoutException
from tests.e2e.gateway.clients import (
    AGENT,
    BOUND_S,
    PORT,
    headers_of,
    remote,
    start_port_server,
)
from tests.e2e.server import Server

from atoll import Hosting, Lifecycle, Sandbox


def wait_until_gone(server: Server, sandbox_id: str) -> httpx.Response:
    deadline = time.monotonic() + BOUND_S
    while True:
        answer = httpx.get(f"{server.url}/health", headers=headers_of(sandbox_id, AGENT), timeout=BOUND_S)
        if answer.status_code != 204 or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def test_a_kill_cuts_streams_and_then_nothing_answers(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        doomed = stack.enter_context(Sandbox.create(hosting=Hosting(team="default")))
        start_port_server(doomed)
        client = stack.enter_context(
            httpx.Client(base_url=server.url, headers=headers_of(doomed.id, PORT), timeout=BOUND_S)
        )
        # an answer without a length, whose end would be a clean end
        answer = stack.enter_context(client.stream("GET", "/wait"))
        pieces = answer.iter_raw()
        assert next(pieces) == b"waiting"
        doomed.kill()
        with pytest.raises(httpx.ReadError, match="reset"):
            next(pieces)
        gone = wait_until_gone(server, doomed.id)
        assert (gone.status_code, gone.json()["message"]) == (502, "The sandbox was not found")


def test_a_kill_during_a_command_is_what_the_e2b_sdk_says_it_is(server: Server, module_home: Path) -> None:
    with Sandbox.create(hosting=Hosting(team="default")) as doomed:
        there = remote(server, doomed, module_home)
        command = there.commands.run("sleep 1000", background=True, timeout=0)
        doomed.kill()
        with pytest.raises(TimeoutException, match="was killed or reached its end of life"):
            command.wait()


def test_a_request_wakes_a_sleeping_sandbox_and_waits_for_it(port: httpx.Client, box: Sandbox) -> None:
    assert port.get("/plain").text == "plain"
    box.suspend()
    assert box.info().state == "suspended"
    assert port.get("/plain").text == "plain"
    assert box.info().state == "running"


def test_a_sandbox_that_is_to_sleep_on_is_not_woken_by_a_request(server: Server) -> None:
    with Sandbox.create(hosting=Hosting(team="default"), lifecycle=Lifecycle(auto_resume=False)) as asleep:
        headers = headers_of(asleep.id, AGENT)
        assert httpx.get(f"{server.url}/health", headers=headers, timeout=BOUND_S).status_code == 204
        asleep.suspend()
        refused = httpx.get(f"{server.url}/health", headers=headers, timeout=BOUND_S)
        assert (refused.status_code, refused.json()["message"]) == (502, "The sandbox was not found")
        assert asleep.info().state == "suspended"
        asleep.resume()
        assert httpx.get(f"{server.url}/health", headers=headers, timeout=BOUND_S).status_code == 204


def test_a_client_that_leaves_ends_the_request_inside(server: Server) -> None:
    with Sandbox.create(hosting=Hosting(team="default")) as box:
        start_port_server(box)
        headers = headers_of(box.id, PORT)
        with httpx.stream("GET", f"{server.url}/wait", headers=headers, timeout=BOUND_S) as answer:
            assert next(answer.iter_raw()) == b"waiting"
        deadline = time.monotonic() + BOUND_S
        while not box.files.exists("/tmp/left"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
