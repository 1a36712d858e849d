"""Connections of a guest through an upstream proxy: who resolves, who is told what, and what happens if it fails."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dns.rcode
import pytest
from tests.integration.network.nameserver import KnownNames, knowing
from tests.integration.network.proxy import PASSWORD, USER, WRITTEN, Conduct, Proxy, Scheme, proxying
from tests.integration.network.test_network_inspection import Place, place_of
from tests.integration.network.test_network_policies import address_of, echoes, lookup
from tests.integration.network.testbed import (
    PATIENCE_S,
    PUBLIC,
    Guest,
    NetworkTestbed,
    eventually,
    reset_comes,
    serving,
)
from tests.integration.network.web import browsing

from atoll.network import Grant
from atoll.types import EgressDecision, Policy, Rule, UpstreamProxy

GOOD, OTHER = "api.example.com", "other.example.com"
both = pytest.mark.parametrize("scheme", ["http", "socks5"])


class Behind:
    """A guest, the proxy that it is behind, and the nameserver of the host."""

    def __init__(self, guest: Guest, proxy: Proxy, names: KnownNames) -> None:
        self.guest = guest
        self.proxy = proxy
        self.names = names
        self.told: list[EgressDecision] = []
        guest.link.guest.follow(self.told.append, lambda _: None)

    def allow(self, *rules: Rule, proxy: UpstreamProxy | None = None) -> None:
        """Set a policy with the proxy."""
        self.guest.link.set_policy(Policy(rules=rules, proxy=proxy or self.proxy.at()))

    def refusals(self) -> list[str]:
        """The reasons that were told."""
        return [one.reason for one in self.told if one.action == "deny"]


@asynccontextmanager
async def behind(
    testbed: NetworkTestbed, scheme: Scheme, *, timeout_s: float = PATIENCE_S
) -> AsyncIterator[tuple[Behind, int]]:
    """A guest behind a proxy, and the port of a server that echoes."""
    names = {"proxy.example.com": PUBLIC, "inside.example.com": "10.9.9.9", OTHER: PUBLIC}
    async with (
        serving() as port,
        proxying(scheme) as proxy,
        knowing(names) as (known, nameserver),
        testbed.links(lambda: [nameserver], proxy_timeout_s=timeout_s) as links,
    ):
        yield Behind(Guest(await links.take()), proxy, known), port


@both
async def test_the_proxy_gets_the_name_and_the_host_asks_nobody_for_it(
    testbed: NetworkTestbed, scheme: Scheme
) -> None:
    async with behind(testbed, scheme) as (here, port):
        here.allow(Rule(hosts=(GOOD,)))
        address = await address_of(here.guest, GOOD)
        assert address.startswith(("198.18.", "198.19."))
        assert await echoes(here.guest, address, port)
        assert here.proxy.asked == [(GOOD, port)]
        assert here.proxy.logins == [(USER, PASSWORD)]
        for kind in ("AAAA", "TXT", "MX", "SRV", "HTTPS", "CNAME"):
            answer = await lookup(here.guest, GOOD, kind)
            assert (answer.rcode(), answer.answer) == (dns.rcode.NOERROR, [])
        assert (await lookup(here.guest, OTHER)).rcode() == dns.rcode.NXDOMAIN
        assert here.names.asked == []


@both
async def test_a_destination_by_address_is_given_as_an_address(
    testbed: NetworkTestbed, scheme: Scheme
) -> None:
    async with behind(testbed, scheme) as (here, port):
        here.allow(Rule())
        assert await echoes(here.guest, "203.0.113.9", port)
        assert here.proxy.asked == [("203.0.113.9", port)]
        for shut in ("10.9.9.9", "169.254.169.254", "127.0.0.1"):
            assert await here.guest.is_reset(shut, port)
        assert here.proxy.asked == [("203.0.113.9", port)]


@both
async def test_a_server_that_speaks_first_is_heard_and_ends_of_streams_pass(
    testbed: NetworkTestbed, scheme: Scheme
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.write(await reader.read())
        await writer.drain()
        writer.close()

    async with serving(greet) as port, behind(testbed, scheme) as (here, _):
        here.allow(Rule(hosts=(GOOD,)))
        with await here.guest.connect(await address_of(here.guest, GOOD), port) as connected:
            assert await asyncio.to_thread(connected.recv, 100) == b"220 ready\r\n"
            connected.sendall(b"bye\r\n")
            connected.shutdown(1)
            assert await asyncio.to_thread(connected.recv, 100) == b"bye\r\n"


async def test_only_the_names_of_the_proxy_go_through_it(testbed: NetworkTestbed) -> None:
    async with behind(testbed, "socks5") as (here, port):
        here.allow(Rule(), proxy=here.proxy.at("proxy.example.com", hosts=("api.example.com",)))
        for name in (GOOD, OTHER):
            assert await echoes(here.guest, await address_of(here.guest, name), port)
        assert await echoes(here.guest, PUBLIC, port)
        assert here.proxy.asked == [(GOOD, port)]
        assert {name for name, _ in here.names.asked} == {"proxy.example.com", OTHER}


async def test_a_name_of_local_networks_reaches_the_proxy_only_if_a_rule_names_it(
    testbed: NetworkTestbed,
) -> None:
    async with behind(testbed, "socks5") as (here, port):
        here.allow(Rule(hosts=("*",)))
        for name in ("metadata.google.internal", "metadata", "localhost", "nas.local"):
            assert (await lookup(here.guest, name)).rcode() == dns.rcode.NXDOMAIN
        here.allow(Rule(hosts=("nas.local", "localhost")))
        assert await echoes(here.guest, await address_of(here.guest, "nas.local"), port)
        assert await here.guest.is_reset(await address_of(here.guest, "localhost"), port)
        assert here.proxy.asked == [("nas.local", port)]
        assert here.names.asked == []


@pytest.mark.parametrize("host", ["10.9.9.9", "inside.example.com", "127.0.0.1"])
async def test_a_proxy_that_is_not_at_a_public_address_is_used_only_if_it_is_opened(
    testbed: NetworkTestbed, host: str
) -> None:
    async with behind(testbed, "http") as (here, port):
        here.allow(Rule(hosts=(GOOD,)), proxy=here.proxy.at(host))
        address = await address_of(here.guest, GOOD)
        assert await here.guest.is_reset(address, port)
        await eventually(lambda: here.refusals() and "`addresses` do not open it" in here.refusals()[-1])
        assert here.proxy.asked == []
        url = here.proxy.at(host).url
        here.allow(Rule(hosts=(GOOD,)), proxy=UpstreamProxy(url=url, addresses=("10.9.9.0/24", "127.0.0.1")))
        assert await echoes(here.guest, address, port)


FAULTS: list[tuple[Scheme, Conduct, str]] = [
    ("http", "refuse", "it answers 403"),
    ("http", "lie", "it does not answer as a proxy of HTTP does"),
    ("http", "end", "it ends the connection"),
    ("http", "flood", "its answer is too long"),
    ("socks5", "refuse", "its rules do not allow it"),
    ("socks5", "lie", "it chooses a login that was not offered"),
    ("socks5", "end", "it ends the connection"),
    ("socks5", "flood", "it does not answer as a proxy of SOCKS5 does"),
]


@pytest.mark.parametrize(("scheme", "conduct", "reason"), FAULTS)
async def test_a_proxy_that_fails_resets_the_connection_and_the_log_says_why(
    testbed: NetworkTestbed, scheme: Scheme, conduct: Conduct, reason: str
) -> None:
    async with behind(testbed, scheme) as (here, port):
        here.proxy.conduct = conduct
        here.allow(Rule(name="api", hosts=(GOOD,)))
        assert await here.guest.is_reset(await address_of(here.guest, GOOD), port)
        await eventually(here.refusals)
        assert here.refusals() == [f"the upstream proxy does not connect: {reason}"]
        assert (here.told[-1].host, here.told[-1].port, here.told[-1].rule) == (GOOD, port, 0)


@both
async def test_a_proxy_that_hangs_has_a_bounded_time(testbed: NetworkTestbed, scheme: Scheme) -> None:
    async with behind(testbed, scheme, timeout_s=0.5) as (here, port):
        here.proxy.conduct = "hang"
        here.allow(Rule(hosts=(GOOD,)))
        assert await here.guest.is_reset(await address_of(here.guest, GOOD), port)
        await eventually(here.refusals)
        assert here.refusals() == ["the upstream proxy does not connect: it gives no answer within 0.5 s"]


@both
async def test_a_proxy_that_is_down_or_does_not_know_the_password_is_told_as_that(
    testbed: NetworkTestbed, scheme: Scheme
) -> None:
    async with behind(testbed, scheme) as (here, port):
        wrong = here.proxy.at(login=f"{USER}:wr0ng-{WRITTEN}@")
        here.allow(Rule(hosts=(GOOD,)), proxy=wrong)
        address = await address_of(here.guest, GOOD)
        assert await here.guest.is_reset(address, port)
        await eventually(
            lambda: here.refusals() and "it does not take the user and password" in here.refusals()[-1]
        )
        here.allow(Rule(hosts=(GOOD,)), proxy=UpstreamProxy(url=f"{scheme}://{PUBLIC}:1"))
        assert await here.guest.is_reset(address, port)
        await eventually(lambda: "it cannot be reached: Connection refused" in here.refusals()[-1])
        assert not any("wr0ng" in repr(one) or PASSWORD in repr(one) for one in here.told)


async def test_a_change_of_the_proxy_acts_on_open_connections(testbed: NetworkTestbed) -> None:
    async with behind(testbed, "socks5") as (here, port):
        rule = Rule(hosts=(GOOD, OTHER))

        async def opened(name: str) -> socket.socket:
            connected = await here.guest.connect(await address_of(here.guest, name), port)
            connected.sendall(b"hello")
            assert await asyncio.to_thread(connected.recv, 5) == b"hello"
            return connected

        here.guest.link.set_policy(Policy(rules=(rule,)))
        with await opened(OTHER) as direct:
            here.allow(rule)
            assert await reset_comes(direct)
        with await opened(GOOD) as behind_it, await opened(OTHER) as other:
            here.allow(rule, Rule(hosts=("more.example.com",)))
            here.allow(rule, proxy=here.proxy.at(hosts=(GOOD,)))
            assert await reset_comes(other)
            behind_it.sendall(b"again")
            assert await asyncio.to_thread(behind_it.recv, 5) == b"again"
            here.allow(rule, proxy=here.proxy.at(login="", hosts=(GOOD,)))
            assert await reset_comes(behind_it)
        with await opened(GOOD) as last:
            here.guest.link.set_policy("internet")
            assert await reset_comes(last)


async def test_a_connection_that_waits_for_a_proxy_ends_when_the_policy_forbids_it(
    testbed: NetworkTestbed,
) -> None:
    async with behind(testbed, "http") as (here, port):
        here.proxy.conduct = "hang"
        here.allow(Rule(hosts=(GOOD,)))
        with await here.guest.connect(await address_of(here.guest, GOOD), port) as waiting:
            await eventually(lambda: here.guest.link.guest.flows())
            here.guest.link.set_policy("none")
            assert await reset_comes(waiting)


@asynccontextmanager
async def inspected(testbed: NetworkTestbed, scheme: Scheme) -> AsyncIterator[tuple[Place, Proxy, int]]:
    async with proxying(scheme) as proxy, place_of(testbed) as (place, _, port):
        policy = Policy(
            rules=(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",), set_headers={"x-team": "reef"}),),
            proxy=proxy.at(),
        )
        place.guest.link.inspect(place.inspection, "s1", Grant(policy, {}, ()))
        place.guest.link.set_policy(policy)
        yield place, proxy, port


@both
async def test_requests_that_are_judged_go_through_the_proxy_too(
    testbed: NetworkTestbed, scheme: Scheme
) -> None:
    async with inspected(testbed, scheme) as (place, proxy, port):
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            status, body = await browser.fetch("GET", "/v1")
            assert (status, json.loads(body)["headers"]["x-team"]) == (200, "reef")
            assert (await browser.fetch("POST", "/v1"))[0] == 403
        assert proxy.asked == [(GOOD, port)]
        assert proxy.logins == [(USER, PASSWORD)]


async def test_a_judged_request_whose_proxy_refuses_is_told_so_without_the_proxys_place(
    testbed: NetworkTestbed,
) -> None:
    async with inspected(testbed, "socks5") as (place, proxy, port):
        proxy.conduct = "refuse"
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            status, body = await browser.fetch("GET", "/v1")
            assert status == 502
            assert b"the upstream proxy does not connect" in body
            assert str(proxy.port).encode() not in body
        await eventually(lambda: any("its rules do not allow it" in one.reason for one in place.told))


async def test_a_judged_connection_ends_when_its_proxy_changes(testbed: NetworkTestbed) -> None:
    async with inspected(testbed, "http") as (place, proxy, port):
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("GET", "/"))[0] == 200
            policy = Policy(rules=(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)),))
            place.guest.link.inspect(place.inspection, "s1", Grant(policy, {}, ()))
            place.guest.link.set_policy(policy)
            with pytest.raises((ConnectionError, OSError)):
                await browser.fetch("GET", "/")
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("GET", "/"))[0] == 200
        assert proxy.asked == [(GOOD, port)]


async def test_a_proxy_is_a_server_that_the_ceiling_must_let_be_reached(testbed: NetworkTestbed) -> None:
    async with behind(testbed, "socks5") as (here, port):
        named = here.proxy.at("proxy.example.com")
        own = Policy(rules=(Rule(hosts=(GOOD,)),), proxy=named)
        at_proxy = Rule(hosts=("proxy.example.com",), ports=(here.proxy.port,))
        here.guest.link.set_policy(own, ceiling=Policy(rules=(Rule(hosts=(GOOD,)), at_proxy)))
        address = await address_of(here.guest, GOOD)
        with await here.guest.connect(address, port) as connected:
            connected.sendall(b"a")
            assert await asyncio.to_thread(connected.recv, 1) == b"a"
            here.guest.link.set_policy(own, ceiling=Policy.allow(GOOD))
            assert await reset_comes(connected)
        asked = list(here.names.asked)
        assert await here.guest.is_reset(address, port)
        assert here.names.asked == asked
        refused = "the team's ceiling does not let it be used: no rule allows proxy.example.com"
        await eventually(lambda: any(refused in reason for reason in here.refusals()))
        by_address = Policy(
            rules=(Rule(hosts=(GOOD,)), Rule(addresses=(PUBLIC,), ports=(here.proxy.port + 1,)))
        )
        here.allow(Rule(hosts=(GOOD,)))
        here.guest.link.set_policy(Policy(rules=own.rules, proxy=here.proxy.at()), ceiling=by_address)
        assert await here.guest.is_reset(address, port)
        assert len(here.proxy.asked) == 1
        looking = Policy(rules=(Rule(hosts=(GOOD,)), Rule(ports=(here.proxy.port,), methods=("GET",))))
        here.guest.link.set_policy(Policy(rules=own.rules, proxy=here.proxy.at()), ceiling=looking)
        assert await here.guest.is_reset(address, port)
        assert len(here.proxy.asked) == 1
