"""A team's ceiling beside the policy of a guest, on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from http.client import HTTPException

import dns.rcode
from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_inspection import GOOD, NAMES, OTHER, Place, place_of
from tests.integration.network.test_network_policies import address_of, echoes, lookup
from tests.integration.network.testbed import PUBLIC, NetworkTestbed, eventually, reset_comes, serving
from tests.integration.network.web import browsing

from atoll.network import Grant
from atoll.policy import EVERYTHING
from atoll.types import Policy, Rule


def bound(
    place: Place, own: Sequence[Rule], ceiling: Sequence[Rule] | None, passed: tuple[str, ...] = ()
) -> None:
    """Set the policy and the ceiling, as the supervisor does."""
    policy = Policy(rules=tuple(own), passthrough=passed)
    over = None if ceiling is None else Policy(rules=tuple(ceiling))
    place.guest.link.inspect(place.inspection, "s1", Grant(policy, ceiling=over))
    place.guest.link.set_policy(policy, ceiling=over)


async def test_a_ceiling_ends_open_connections_and_refuses_new_ones_and_names(
    testbed: NetworkTestbed,
) -> None:
    async with serving() as port, knowing(NAMES) as (server, nameserver):
        async with testbed.guest(lambda: [nameserver]) as guest:
            told: list[str] = []
            guest.link.guest.follow(lambda decision: told.append(decision.reason), told.append)
            own = Policy.allow(GOOD, OTHER)
            guest.link.set_policy(own)
            stays, goes = await address_of(guest, GOOD), await address_of(guest, OTHER)
            with await guest.connect(stays, port) as kept, await guest.connect(goes, port) as cut:
                for connected in (kept, cut):
                    connected.sendall(b"a")
                    assert await asyncio.to_thread(connected.recv, 1) == b"a"
                guest.link.set_policy(own, ceiling=Policy.allow(GOOD))
                assert await reset_comes(cut)
                kept.sendall(b"b")
                assert await asyncio.to_thread(kept.recv, 1) == b"b"
            assert await echoes(guest, stays, port)
            assert await guest.is_reset(goes, port)
            asked = list(server.asked)
            assert (await lookup(guest, OTHER)).rcode() == dns.rcode.NXDOMAIN
            assert server.asked == asked
            await eventually(lambda: f"the team's ceiling: no rule allows {OTHER}" in told)
            guest.link.set_policy(own)
            assert await echoes(guest, goes, port)


async def test_a_sandbox_without_rules_gets_those_of_the_ceiling(testbed: NetworkTestbed) -> None:
    async with serving() as port, knowing(NAMES) as (_, nameserver):
        async with testbed.guest(lambda: [nameserver]) as guest:
            guest.link.set_policy("internet")
            assert await address_of(guest, GOOD) == PUBLIC
            with await guest.connect(PUBLIC, port) as connected:
                connected.sendall(b"a")
                assert await asyncio.to_thread(connected.recv, 1) == b"a"
                guest.link.set_policy("internet", ceiling=Policy.allow(GOOD))
                assert await reset_comes(connected)
            assert await guest.is_reset(PUBLIC, port)
            assert await echoes(guest, await address_of(guest, GOOD), port)
            assert (await lookup(guest, OTHER)).rcode() == dns.rcode.NXDOMAIN
            guest.link.set_policy("internet", ceiling=EVERYTHING)
            assert await echoes(guest, await address_of(guest, OTHER), port)
            guest.link.set_policy("internet")
            assert await address_of(guest, OTHER) == PUBLIC


async def test_what_only_the_ceiling_wants_to_see_is_looked_into(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, served, port):
        reading = Rule(name="reading", hosts=("*",), ports=(port,), methods=("GET",))
        for own, passed in (([Rule()], ()), ([Rule(hosts=(GOOD,))], ()), ([Rule(hosts=(GOOD,))], (GOOD,))):
            bound(place, own, [reading], passed)
            address = await address_of(place.guest, GOOD)
            async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
                assert (await browser.fetch("GET", "/a"))[0] == 200
                status, body = await browser.fetch("POST", "/a", body=b"x")
            refusal = json.loads(body)
            assert (status, refusal["ceiling"]) == (403, True)
            assert "ceiling of this sandbox's team" in refusal["message"]
            assert "rule reading allows it with the method GET" in refusal["remedy"]
        assert {seen["method"] for seen in served.seen} == {"GET"}
        await eventually(lambda: any(one.ceiling and one.method == "POST" for one in place.told))


async def test_an_open_connection_is_judged_by_the_newest_ceiling(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, served, port):
        own = [Rule(hosts=(GOOD,), ports=(port,), methods=("GET", "POST"))]
        bound(place, own, None)
        address = await address_of(place.guest, GOOD)

        async def has_come(wanted: int) -> None:
            """What the edge gets after a ceiling is judged by it. A request before that may be cut."""
            async with browsing(place.guest, address, GOOD, port, place.trusted) as later:
                assert (await later.fetch("POST", "/", body=b"later"))[0] == wanted

        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("POST", "/", body=b"1"))[0] == 200
            bound(place, own, [Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))])
            await has_come(403)
            assert (await browser.fetch("POST", "/", body=b"2"))[0] == 403
            assert (await browser.fetch("GET", "/"))[0] == 200
            # One that decides by name alone: the connection stays, for the policy.
            bound(place, own, [Rule(hosts=(GOOD,))])
            await has_come(200)
            assert (await browser.fetch("POST", "/", body=b"3"))[0] == 200
        assert [seen["method"] for seen in served.seen] == ["POST", "GET", "POST", "POST"]


async def test_a_connection_that_the_ceiling_begins_to_look_into_is_made_anew(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (place, _, _), serving() as port:
        bound(place, [Rule(hosts=(GOOD,))], None)
        address = await address_of(place.guest, GOOD)
        with await place.guest.connect(address, port) as connected:
            connected.sendall(b"\0")
            assert await asyncio.to_thread(connected.recv, 1) == b"\0"
            bound(place, [Rule(hosts=(GOOD,))], [Rule(hosts=(GOOD,), ports=(port,), protocol="http")])
            assert await reset_comes(connected)


async def test_a_ceiling_unplugs(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, served, port):
        spying = Rule(action="unplug", name="spying", paths=("/spy/**",), ports=(port,))
        bound(place, [Rule(hosts=(GOOD,))], [spying, Rule(hosts=("*",))])
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("GET", "/a"))[0] == 200
            with contextlib.suppress(OSError, HTTPException):
                await browser.fetch("GET", "/spy/a")
        await eventually(lambda: place.unplugged)
        assert place.unplugged[0] == "the team's ceiling: rule spying decides"
        assert [seen["path"] for seen in served.seen] == ["/a"]
