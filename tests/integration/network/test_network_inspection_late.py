"""What comes late: an answer for an edge that has died, and rules for a guest that sleeps."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import pytest
from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_inspection import GOOD, NAMES, eventually, place_of
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import PATIENCE_S, PUBLIC, NetworkTestbed, serving
from tests.integration.network.web import browsing

from atoll.network import EdgeProgram, Grant, Inspection, connection
from atoll.types import Policy, Rule

# The first one asks for a connection and dies; the next one notes all that it is told.
DYING_EDGE = """
import json, os, socket, sys
place = sys.argv[1]
channel = socket.socket(fileno=int(sys.argv[3]))
def say(**message):
    channel.send(json.dumps(message).encode())
is_first = not os.path.exists(f"{place}/asked")
socket.recv_fds(channel, 1 << 16, 1)
say(op="ready", protocol=1, confined=[])
while True:
    data, fds, _, _ = socket.recv_fds(channel, 1 << 16, 1)
    if not data:
        break
    message = json.loads(data)
    if message["op"] == "take" and is_first:
        say(op="dial", id=1, sandbox=message["sandbox"], connection=message["connection"])
        open(f"{place}/asked", "w").close()
        break
    with open(f"{place}/told", "a") as file:
        file.write(message["op"] + "\\n")
    if message["op"] == "judge":
        say(op="judged", id=message["id"], action="allow", rule=0, reason="", changes=[], observed=False)
"""


async def test_an_answer_for_an_edge_that_has_died_does_not_reach_the_next_one(
    testbed: NetworkTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next edge may take long to start, and the answer is to be later.
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", PATIENCE_S)
    place = testbed.pins.parent / "dying"
    place.mkdir()
    argv = (sys.executable, "-c", DYING_EDGE, str(place))
    inspection = Inspection(EdgeProgram(lambda: argv, dict))
    policy = Policy(rules=(Rule(hosts=(GOOD,), ports=("1-65535",), protocol="http"),))
    # A server whose queue is full: connecting to it takes until somebody is accepted.
    full = socket.create_server(("0.0.0.0", 0), backlog=0)
    port = full.getsockname()[1]
    first = socket.create_connection((PUBLIC, port))
    try:
        with full, first:
            async with knowing(NAMES) as (_, nameserver), testbed.guest(lambda: [nameserver]) as guest:
                guest.link.inspect(inspection, "s1", Grant(policy))
                guest.link.set_policy(policy)
                with await guest.connect(await address_of(guest, GOOD), port):
                    await eventually(lambda: (place / "asked").exists())
                    await eventually(lambda: (place / "told").read_text().count("policy") == 2)
                    assert len(inspection._dials) == 1
                    full.accept()[0].close()
                    await eventually(lambda: not inspection._dials)
                    await inspection.judge(Grant(policy), {}, {})
                assert (place / "told").read_text().split() == ["policy", "policy", "judge"]
    finally:
        await inspection.aclose()
        for file in (place / "asked", place / "told"):
            file.unlink(missing_ok=True)
        os.rmdir(place)


async def test_a_connection_of_a_sleeping_guest_outlasts_a_new_policy_that_allows_it(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (made, _, _), serving() as port:
        limited = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        made.allow(limited, Rule(hosts=(GOOD,)))
        with await made.guest.connect(await address_of(made.guest, GOOD), port) as connected:
            connected.sendall(b"\x00one")
            assert await asyncio.to_thread(connected.recv, 4) == b"\x00one"
            made.guest.link.hold()
            made.allow(limited, Rule(hosts=(GOOD,)), Rule(hosts=("*.example.org",)))
            await asyncio.sleep(1.5)  # longer than the edge waits for the rules of a connection
            made.guest.link.release()
            connected.sendall(b"\x00two")
            assert await asyncio.to_thread(connected.recv, 4) == b"\x00two"


async def test_an_answer_through_the_edge_is_noticed_for_a_guest_that_sleeps(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (made, served, port):
        made.allow(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)))
        link, told = made.guest.link, asyncio.Queue[str]()

        def sleep_meanwhile(_: object) -> bytes:
            link.hold()
            link.data_watch.begin(told.put_nowait)
            assert told.empty()
            return b"late"

        served.answer = sleep_meanwhile
        address = await address_of(made.guest, GOOD)
        async with browsing(made.guest, address, GOOD, port, made.trusted) as browser:
            fetching = asyncio.create_task(browser.fetch("GET", "/"))
            assert await told.get() == f"{GOOD}:{port}"
            assert not fetching.done()
            link.release()
            assert await fetching == (200, b"late")
            await asyncio.sleep(0.3)  # its kernel acknowledges what came a moment later
            link.hold()
            link.data_watch.begin(told.put_nowait)
            await asyncio.sleep(1)  # nothing comes by itself, from the edge neither
            assert link.data_watch.is_on
            link.release()
