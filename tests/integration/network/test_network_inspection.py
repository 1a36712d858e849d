"""Rules about requests, from a guest through the relay and the edge to a server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import PUBLIC, Guest, NetworkTestbed, eventually, serving
from tests.integration.network.web import Web, browsing, certified, web

from atoll.host import edge_path, process_alive
from atoll.network import EdgeProgram, Grant, Inspection, ask_about
from atoll.network.spending import Spending
from atoll.secrets import Authority, home_authority
from atoll.types import EgressDecision, Inject, Policy, RateLimit, Rule

GOOD, OTHER = "api.example.com", "other.example.com"
NAMES = {GOOD: PUBLIC, OTHER: PUBLIC}


class Place:
    """A guest with an edge, and servers with and without TLS."""

    def __init__(self, guest: Guest, inspection: Inspection, authority: Authority) -> None:
        self.guest = guest
        self.inspection = inspection
        self.trusted = authority.certificate
        self.told: list[EgressDecision] = []
        self.unplugged: list[str] = []
        guest.link.guest.follow(self.told.append, self.unplugged.append)

    def allow(
        self, *rules: Rule, secrets: dict[str, str] | None = None, canaries: tuple[str, ...] = ()
    ) -> None:
        """Set the policy."""
        policy = Policy(rules=rules)
        self.guest.link.inspect(self.inspection, "s1", Grant(policy, secrets or {}, canaries))
        self.guest.link.set_policy(policy)


@asynccontextmanager
async def place_of(testbed: NetworkTestbed) -> AsyncIterator[tuple[Place, Web, int]]:
    """A guest, an edge, and a server with TLS that the edge trusts."""
    home, outside = (home_authority(testbed.pins.parent / name) for name in ("home.pem", "outside.pem"))
    certificate = certified(outside, [GOOD, OTHER], testbed.pins.parent / "server.pem")
    config = {"ca_certificate": home.certificate, "ca_key": home.key, "roots": outside.certificate}
    try:
        async with (
            knowing(NAMES) as (_, nameserver),
            testbed.guest(lambda: [nameserver]) as guest,
            web(certificate) as (served, port),
        ):
            program = EdgeProgram(
                lambda: (str(edge_path()),), lambda: config, testbed.pins.parent / "edge.sock"
            )
            inspection = Inspection(program, guest.link.guest.relay)
            try:
                yield Place(guest, inspection, home), served, port
            finally:
                await inspection.aclose()
    finally:
        for name in ("home.pem", "outside.pem", "server.pem"):
            (testbed.pins.parent / name).unlink()


async def test_a_request_that_a_rule_allows_passes_and_another_one_is_told_why_not(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (place, served, port):
        place.allow(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",), paths=("/v1/**",)))
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            status, body = await browser.fetch("GET", "/v1/items?x=1")
            assert (status, json.loads(body).get("path")) == (200, "/v1/items?x=1"), body
            status, body = await browser.fetch("POST", "/v1/items", body=b"x")
            assert status == 403
            assert json.loads(body)["error"] == "egress_denied"
            status, body = await browser.fetch("GET", "/v2")
            assert status == 403
        assert [seen["path"] for seen in served.seen] == ["/v1/items?x=1"]
        await eventually(lambda: {one.action for one in place.told} == {"allow", "deny"})


async def test_the_wire_and_the_test_of_a_policy_agree(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, _, port):
        policy = Policy(rules=(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)),))
        place.allow(*policy.rules)
        address = await address_of(place.guest, GOOD)
        for method, expected in (("GET", "allow"), ("DELETE", "deny")):
            request = {"scheme": "https", "method": method, "url": f"https://{GOOD}:{port}/", "headers": []}
            verdict = await ask_about(
                place.inspection, place.guest.link.guest.relay, Grant(policy), request, GOOD, port
            )
            assert verdict.action == expected
            async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
                status, _ = await browser.fetch(method, "/")
                assert (status == 200) == (expected == "allow")


async def test_a_secret_is_put_in_outside_and_what_the_guest_wrote_there_is_dropped(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (place, served, port):
        inject = Inject(secret="key", key="authorization", format="Bearer {}")
        place.allow(Rule(hosts=(GOOD,), ports=(port,), inject=(inject,)), secrets={"key": "s3cr3t-value"})
        served.answer = lambda seen: json.dumps(seen).encode()
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            status, body = await browser.fetch("GET", "/", headers={"Authorization": "Bearer mine"})
        assert status == 200
        assert served.seen[0]["headers"]["authorization"] == "Bearer s3cr3t-value"
        assert b"s3cr3t-value" not in body


async def test_a_name_other_than_the_one_that_was_resolved_cannot_be_asked_for(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (place, served, port):
        place.allow(Rule(hosts=(GOOD,), ports=(port,), protocol="http"), Rule(hosts=(OTHER,), ports=(port,)))
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, OTHER, port, place.trusted) as browser:
            assert (await browser.fetch("GET", "/"))[0] == 421
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            status, _ = await browser.fetch("GET", "/", headers={"Host": OTHER})
        assert status == 421
        assert served.seen == []


async def test_plain_http_by_name_is_looked_into_for_the_host_it_asks_for(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, _, _), web() as (served, port):
        place.allow(Rule(hosts=(GOOD,)))
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port) as browser:
            assert (await browser.fetch("GET", "/a"))[0] == 200
            assert (await browser.fetch("GET", "/b", headers={"Host": OTHER}))[0] == 421
        assert [seen["path"] for seen in served.seen] == ["/a"]


async def test_another_protocol_passes_where_a_rule_without_conditions_allows_it(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (place, _, _), serving() as port:
        limited = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        place.allow(limited, Rule(hosts=(GOOD,)))
        address = await address_of(place.guest, GOOD)
        with await place.guest.connect(address, port) as connected:
            connected.sendall(b"\x00\x01binary\xff")
            assert await asyncio.to_thread(connected.recv, 100) == b"\x00\x01binary\xff"
        place.allow(limited)
        with await place.guest.connect(address, port) as connected:
            connected.sendall(b"\x00\x01binary\xff")
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(connected.recv, 100)


async def test_an_open_connection_is_judged_by_the_newest_policy(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, _, port):
        place.allow(Rule(hosts=(GOOD,), ports=(port,), methods=("GET", "POST")))
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("POST", "/", body=b"1"))[0] == 200
            place.allow(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)))
            # What the edge gets after the policy is judged by it. A request before that may be cut.
            async with browsing(place.guest, address, GOOD, port, place.trusted) as later:
                assert (await later.fetch("POST", "/", body=b"2"))[0] == 403
            assert (await browser.fetch("POST", "/", body=b"2"))[0] == 403
            answer = await browser.fetch("GET", "/")
            assert answer[0] == 200, answer
            place.allow()
            with pytest.raises(OSError):
                await browser.fetch("GET", "/")


async def test_a_canary_in_a_request_unplugs_and_the_request_is_not_sent(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, served, port):
        place.allow(Rule(hosts=(GOOD,), ports=(port,), protocol="http"), canaries=("AKIA-CANARY-0001",))
        address = await address_of(place.guest, GOOD)
        hidden = base64.b64encode(b"xxAKIA-CANARY-0001").decode()
        with pytest.raises(OSError):
            async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
                await browser.fetch("GET", f"/?q={hidden}")
        await eventually(lambda: place.unplugged)
        assert served.seen == []


async def test_when_the_edge_dies_its_connections_end_and_it_is_back_soon(testbed: NetworkTestbed) -> None:
    async with place_of(testbed) as (place, _, port), serving() as fast:
        rules = (Rule(hosts=(GOOD,), ports=(port,), protocol="http"), Rule(hosts=(GOOD,), ports=(fast,)))
        place.allow(*rules)
        address = await address_of(place.guest, GOOD)
        untouched = await place.guest.connect(address, fast)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("GET", "/"))[0] == 200
            os.kill(_edge(), signal.SIGKILL)
            with pytest.raises(OSError):
                for _ in range(100):
                    await browser.fetch("GET", "/")
                    await asyncio.sleep(0.05)
        with untouched:
            untouched.sendall(b"\x00x")
            assert await asyncio.to_thread(untouched.recv, 2) == b"\x00x"

        async def served_again() -> bool:
            try:
                async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
                    return (await browser.fetch("GET", "/"))[0] == 200
            except OSError:
                return False

        for _ in range(100):
            if await served_again():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it is not back")


@pytest.mark.parametrize("restarted", ["the edge", "the sandbox"])
async def test_what_a_limit_has_counted_outlives_the_edge(testbed: NetworkTestbed, restarted: str) -> None:
    async with place_of(testbed) as (place, served, port):
        limit = RateLimit(requests=3, per_s=3600, total_bytes=20_000)
        rule = Rule(hosts=(GOOD,), ports=(port,), protocol="http", limit=limit)
        place.allow(rule)
        served.answer = lambda seen: bytes(1000)
        address = await address_of(place.guest, GOOD)
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            for _ in range(3):
                assert (await browser.fetch("GET", "/"))[0] == 200
        spending = place.inspection._inspected["s1"].spending
        if restarted == "the edge":
            await eventually(lambda: _requests(spending) == 3)
            await eventually(lambda: spending.document()[0]["total_bytes"] >= 3000)  # of the last one too
            before = _edge()
            os.kill(before, signal.SIGKILL)
            await eventually(lambda: before not in _edges() and _edges())
        else:  # what the edge has not told yet, it tells when it forgets
            place.inspection.forget("s1", place.guest.link.guest)
            await eventually(lambda: _requests(spending) == 3)
            await eventually(lambda: spending.document()[0]["total_bytes"] >= 3000)
            place.allow(rule)
        assert 3000 <= spending.document()[0]["total_bytes"] < 20_000
        async with browsing(place.guest, address, GOOD, port, place.trusted) as browser:
            assert (await browser.fetch("GET", "/"))[0] == 429
        place.inspection.erase("s1")
        assert place.inspection._counts._spending == {}


def _requests(spending: Spending) -> int:
    return sum(many for one in spending.document() for _, many in one["requests"])


async def test_a_guest_that_slept_while_the_edge_died_gets_its_reset_when_it_wakes(
    testbed: NetworkTestbed,
) -> None:
    async with place_of(testbed) as (place, _, _), serving() as port:
        place.allow(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)), Rule(hosts=(GOOD,)))
        with await place.guest.connect(await address_of(place.guest, GOOD), port) as connected:
            connected.sendall(b"\x00\x01")
            assert await asyncio.to_thread(connected.recv, 100) == b"\x00\x01"
            place.guest.link.hold()
            before = _edge()
            os.kill(before, signal.SIGKILL)
            await eventually(lambda: before not in _edges() and _edges())
            connected.setblocking(False)
            with pytest.raises(BlockingIOError):
                connected.recv(100)
            connected.setblocking(True)
            place.guest.link.release()
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(connected.recv, 100)


async def test_an_edge_that_nobody_could_find_again_is_told_nothing(testbed: NetworkTestbed) -> None:
    told: list[tuple[int, int]] = []

    def started(pid: int, ticks: int) -> None:
        told.append((pid, ticks))
        raise OSError("no space is left")

    def config() -> dict[str, str]:
        raise AssertionError("it is told something")

    async with testbed.guest(list) as guest:
        path = testbed.pins.parent / "edge.sock"
        program = EdgeProgram(lambda: (str(edge_path()),), config, path, started)
        inspection = Inspection(program, guest.link.guest.relay)
        policy = Policy(rules=(Rule(hosts=(GOOD,), ports=(80,), protocol="http"),))
        guest.link.inspect(inspection, "s1", Grant(policy))
        await eventually(lambda: told)
        await inspection.aclose()
    assert not any(process_alive(pid, ticks) for pid, ticks in told)


async def test_a_rule_about_requests_needs_the_edge_and_nothing_passes_without_it(
    testbed: NetworkTestbed,
) -> None:
    async with knowing(NAMES) as (_, nameserver), testbed.guest(lambda: [nameserver]) as guest:
        async with serving() as port:
            guest.link.set_policy(Policy(rules=(Rule(hosts=(GOOD,), ports=(port,), protocol="http"),)))
            assert await guest.is_reset(await address_of(guest, GOOD), port)


def _edge() -> int:
    """The process of this test's edge."""
    (found,) = _edges()
    return found


def _edges() -> list[int]:
    """The edges among the children of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if "atoll-edge" in Path(f"/proc/{pid}/cmdline").read_text()]
