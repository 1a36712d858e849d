"""Policies with rules by name, on the wire."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dns.message
import dns.rcode
import dns.rdatatype
import pytest
from tests.integration.network.nameserver import KnownNames, knowing
from tests.integration.network.testbed import PUBLIC, Guest, NetworkTestbed, eventually, reset_comes, serving

from atoll.types import HOST_NAME, EgressDecision, Policy, Rule

GOOD = "api.example.com"
NAMES = {GOOD: PUBLIC, "evil.example.net": PUBLIC, "inside.example.com": "10.9.9.9", "six.example.com": "::1"}


@asynccontextmanager
async def guest_of(testbed: NetworkTestbed, policy: Policy) -> AsyncIterator[tuple[Guest, KnownNames]]:
    async with knowing(NAMES) as (server, address), testbed.guest(lambda: [address]) as guest:
        guest.link.set_policy(policy)
        yield guest, server


async def lookup(guest: Guest, name: str, kind: str = "A") -> dns.message.Message:
    query = dns.message.make_query(name, kind)
    with guest.socket(kind=socket.SOCK_DGRAM) as asking:
        asking.connect(("10.254.0.1", 53))
        asking.send(query.to_wire())
        return dns.message.from_wire(await asyncio.to_thread(asking.recv, 4096))


async def address_of(guest: Guest, name: str) -> str:
    answer = await lookup(guest, name)
    assert answer.rcode() == dns.rcode.NOERROR, answer
    return str(answer.answer[0][0].address)


async def echoes(guest: Guest, address: str, port: int) -> bool:
    try:
        with await guest.connect(address, port) as connected:
            connected.sendall(b"hello")
            return await asyncio.to_thread(connected.recv, 5) == b"hello"
    except ConnectionError:
        return False


async def test_an_allowed_name_has_an_address_that_stands_for_it_and_leads_to_it(
    testbed: NetworkTestbed,
) -> None:
    async with serving() as port, guest_of(testbed, Policy.allow(GOOD)) as (guest, _):
        address = await address_of(guest, GOOD)
        assert address.startswith(("198.18.", "198.19."))
        assert await echoes(guest, address, port)
        assert await address_of(guest, GOOD.upper()) == address


async def test_a_name_that_no_rule_allows_does_not_exist_and_is_asked_nowhere(
    testbed: NetworkTestbed,
) -> None:
    async with guest_of(testbed, Policy.allow(GOOD)) as (guest, server):
        for name in ("evil.example.net", "c2VjcmV0.evil.example.net", "example.com", f"x.{GOOD}"):
            for kind in ("A", "AAAA", "TXT", "MX", "ANY", "HTTPS"):
                assert (await lookup(guest, name, kind)).rcode() == dns.rcode.NXDOMAIN
        assert server.asked == []


async def test_what_a_name_leads_to_cannot_be_reached_by_its_address(testbed: NetworkTestbed) -> None:
    async with serving() as port, guest_of(testbed, Policy.allow(GOOD)) as (guest, _):
        assert await guest.is_reset(PUBLIC, port)
        assert await guest.is_reset("198.18.77.77", port)


async def test_a_name_that_leads_to_a_private_address_is_refused_unless_a_rule_opens_the_range(
    testbed: NetworkTestbed,
) -> None:
    async with serving() as port, guest_of(testbed, Policy.allow("*.example.com")) as (guest, _):
        assert (await lookup(guest, "inside.example.com")).rcode() == dns.rcode.NXDOMAIN
        opened = Policy(rules=(Rule(hosts=("inside.example.com",), addresses=("10.9.0.0/16",)),))
        guest.link.set_policy(opened)
        assert await echoes(guest, await address_of(guest, "inside.example.com"), port)


async def test_a_name_that_changes_to_a_private_address_after_it_was_resolved_is_refused(
    testbed: NetworkTestbed,
) -> None:
    names = {GOOD: PUBLIC}
    async with serving() as port, knowing(names) as (server, place):
        links = testbed.links_of(lambda: [place])
        try:
            guest = Guest(await links.take())
            guest.link.set_policy(Policy.allow(GOOD))
            address = await address_of(guest, GOOD)
            server.names[GOOD] = "169.254.169.254"
            links.relay.call({"op": "forget_names"})
            assert await guest.is_reset(address, port)
        finally:
            await links.aclose()
            links.sweep(keep=())


async def test_every_protocol_is_known_by_name_also_where_the_server_speaks_first(
    testbed: NetworkTestbed,
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async with serving(greet) as port, guest_of(testbed, Policy.allow(GOOD)) as (guest, _):
        with await guest.connect(await address_of(guest, GOOD), port) as connected:
            assert await asyncio.to_thread(connected.recv, 100) == b"220 ready\r\n"
            connected.sendall(b"EHLO me\r\n")
            assert await asyncio.to_thread(connected.recv, 100) == b"EHLO me\r\n"


async def test_ports_of_a_rule_bound_what_is_reached(testbed: NetworkTestbed) -> None:
    async with serving() as port, serving() as other:
        policy = Policy(rules=(Rule(hosts=(GOOD,), ports=(port,)),))
        async with guest_of(testbed, policy) as (guest, _):
            address = await address_of(guest, GOOD)
            assert await echoes(guest, address, port)
            assert await guest.is_reset(address, other)


async def test_an_exposed_port_of_the_host_is_reached_by_its_own_name_only(testbed: NetworkTestbed) -> None:
    async with serving(host="127.0.0.1") as port, serving(host="127.0.0.1") as other:
        async with guest_of(testbed, Policy().with_rules(Policy.expose_host(port))) as (guest, server):
            address = await address_of(guest, HOST_NAME)
            assert await echoes(guest, address, port)
            assert await guest.is_reset(address, other)
            assert await guest.is_reset("127.0.0.1", port)
            assert server.asked == []
            guest.link.set_policy(Policy.allow("*"))
            assert (await lookup(guest, HOST_NAME)).rcode() == dns.rcode.NXDOMAIN
            assert await guest.is_reset(address, port)


async def test_open_connections_end_when_a_new_policy_does_not_allow_them(testbed: NetworkTestbed) -> None:
    both = Policy.allow(GOOD, "evil.example.net")
    async with serving() as port, guest_of(testbed, both) as (guest, _):
        stays = await guest.connect(await address_of(guest, GOOD), port)
        goes = await guest.connect(await address_of(guest, "evil.example.net"), port)
        with stays, goes:
            for connected in (stays, goes):
                connected.sendall(b"x")
                assert await asyncio.to_thread(connected.recv, 1) == b"x"
            guest.link.set_policy(Policy.allow(GOOD))
            assert await reset_comes(goes)
            stays.sendall(b"y")
            assert await asyncio.to_thread(stays.recv, 1) == b"y"


async def test_what_an_observing_policy_lets_through_is_told(testbed: NetworkTestbed) -> None:
    told: list[EgressDecision] = []
    policy = Policy(rules=(Rule(hosts=(GOOD,)),), mode="observe")
    async with serving() as port, guest_of(testbed, policy) as (guest, _):
        guest.link.guest.follow(told.append, lambda _: None)
        assert await echoes(guest, await address_of(guest, "evil.example.net"), port)
        await eventually(lambda: told)
        assert [(one.action, one.host, one.observed) for one in told] == [("deny", "evil.example.net", True)]
        assert (await lookup(guest, "inside.example.com")).rcode() == dns.rcode.NXDOMAIN


async def test_a_refusal_says_why_and_which_rule(testbed: NetworkTestbed) -> None:
    told: list[EgressDecision] = []
    policy = Policy(rules=(Rule(action="deny", name="no mail", ports=(25,)), Rule(hosts=("*",))))
    async with guest_of(testbed, policy) as (guest, _):
        guest.link.guest.follow(told.append, lambda _: None)
        assert await guest.is_reset(await address_of(guest, GOOD), 25)
        assert await guest.is_reset(PUBLIC, 443)
        await eventually(lambda: len(told) == 2)
    assert [(one.rule, one.reason) for one in told] == [
        (0, f"rule 1 (no mail) denies {GOOD}:25"),
        (None, f"no rule allows {PUBLIC}:443"),
    ]


async def test_a_rule_that_unplugs_does_so_at_the_name_and_at_the_address(testbed: NetworkTestbed) -> None:
    reasons: list[str] = []
    policy = Policy(
        rules=(
            Rule(action="unplug", name="trap", hosts=("evil.example.net",)),
            Rule(action="unplug", addresses=("203.0.113.0/24",)),
            Rule(hosts=("*",)),
        )
    )
    async with guest_of(testbed, policy) as (guest, server):
        guest.link.guest.follow(lambda _: None, reasons.append)
        assert (await lookup(guest, "evil.example.net")).rcode() == dns.rcode.NXDOMAIN
        await eventually(lambda: reasons)
        guest.link.guest.mend()
        assert await guest.is_reset("203.0.113.9", 443)
        await eventually(lambda: len(reasons) == 2)
        assert reasons == [
            "rule 1 (trap) unplugs at evil.example.net",
            "rule 2 unplugs at 203.0.113.9:443",
        ]
        assert server.asked == []


async def test_a_rule_that_unplugs_by_name_and_port_does_so_at_that_port_and_not_at_the_lookup(
    testbed: NetworkTestbed,
) -> None:
    reasons: list[str] = []
    trap = Rule(action="unplug", hosts=(GOOD,), ports=(25,))
    async with serving() as port, guest_of(testbed, Policy(rules=(trap, Rule(hosts=("*",))))) as (guest, _):
        guest.link.guest.follow(lambda _: None, reasons.append)
        address = await address_of(guest, GOOD)
        assert await echoes(guest, address, port)
        assert reasons == []
        assert await guest.is_reset(address, 25)
        await eventually(lambda: reasons)
        assert reasons == [f"rule 1 unplugs at {GOOD}:25"]
    # Where no rule allows the name, there is nothing to connect to.
    async with guest_of(testbed, Policy(rules=(trap, Rule(hosts=("other.example",))))) as (guest, server):
        guest.link.guest.follow(lambda _: None, reasons.append)
        assert (await lookup(guest, GOOD)).rcode() == dns.rcode.NXDOMAIN
        assert server.asked == []
        await asyncio.sleep(0.3)  # longer than the relay waits before it tells
    assert len(reasons) == 1


@pytest.mark.parametrize("asked, passes", [(GOOD, True), ("evil.example.net", False), (None, False)])
async def test_tls_must_ask_for_the_name_that_was_resolved(
    testbed: NetworkTestbed, asked: str | None, passes: bool
) -> None:
    async with serving() as port, guest_of(testbed, Policy.allow(GOOD)) as (guest, _):
        hello = _greeting(asked)
        with await guest.connect(await address_of(guest, GOOD), port) as connected:
            for piece in (hello[:3], hello[3:40], hello[40:]):
                connected.sendall(piece)
                await asyncio.sleep(0.01)
            if not passes:
                assert await reset_comes(connected)
                return
            received = b""
            while len(received) < len(hello):
                received += await asyncio.to_thread(connected.recv, 4096)
            assert received == hello


async def test_names_outlive_their_supervisor(testbed: NetworkTestbed) -> None:
    async with serving() as port, knowing(NAMES) as (_, place):
        first = testbed.links_of(lambda: [place])
        guest = Guest(await first.take())
        guest.link.set_policy(Policy.allow(GOOD))
        address = await address_of(guest, GOOD)
        await first.aclose()
        second = testbed.links_of(lambda: [place])
        try:
            link = await second.adopt(guest.link.link_id)
            assert link is not None
            link.set_policy(Policy.allow(GOOD))
            assert await link.guest.names() == {address: GOOD}
            assert await echoes(guest, address, port)
        finally:
            await second.aclose()
            second.sweep(keep=())
        assert list(testbed.pins.iterdir()) == []


async def test_a_copy_knows_the_names_of_its_original(testbed: NetworkTestbed) -> None:
    async with serving() as port, knowing(NAMES) as (_, place), testbed.links(lambda: [place]) as links:
        original, copy = Guest(await links.take()), Guest(await links.take())
        original.link.set_policy(Policy.allow(GOOD))
        address = await address_of(original, GOOD)
        copy.link.set_policy(Policy.allow(GOOD))
        assert await copy.is_reset(address, port)
        await copy.link.guest.know(await original.link.guest.names())
        assert await echoes(copy, address, port)


async def test_plain_http_by_name_needs_the_process_that_judges_requests(testbed: NetworkTestbed) -> None:
    async with serving() as port, guest_of(testbed, Policy.allow(GOOD)) as (guest, _):
        with await guest.connect(await address_of(guest, GOOD), port) as connected:
            connected.sendall(b"GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n")
            assert await reset_comes(connected)


def _greeting(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
