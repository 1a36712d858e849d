"""What comes late: an answer for an edge that has died, and rules for a guest that sleeps."""

from __future__ import annotations

import asyncio

from tests.integration.network.test_network_inspection import GOOD, place_of
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import NetworkTestbed, serving
from tests.integration.network.web import browsing

from atoll.types import Rule


# The first one asks for a connection and dies; the next one notes all that it is told.
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
            link.guest.watch(told.put_nowait)
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
            link.guest.watch(told.put_nowait)
            await asyncio.sleep(1)  # nothing comes by itself, from the edge neither
            assert link.guest.is_watched
            link.release()
