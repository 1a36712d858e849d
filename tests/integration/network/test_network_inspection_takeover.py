"""An edge that outlives its supervisor, and is taken over by the next one."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_inspection import GOOD, NAMES, Place
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import Guest, NetworkTestbed, eventually
from tests.integration.network.web import Web, browsing, certified, web
from tests.waiting import stop

from atoll.host import LeftProgram, edge_path, process_alive
from atoll.network import Counts, EdgeProgram, Grant, Inspection, edge_talk, inspection
from atoll.secrets import Authority, home_authority
from atoll.types import Inject, Policy, RateLimit, Rule


class House:
    """A guest, and one supervisor's side of the edge after the other."""

    def __init__(self, guest: Guest, authority: Authority, program: EdgeProgram, home: Path) -> None:
        self.guest = guest
        self.home = home
        self.edges: list[tuple[int, int]] = []
        self.program = replace(
            program, started=lambda pid, ticks: self.edges.append((pid, ticks)), earlier=self._earlier
        )
        self.authority = authority

    def _earlier(self) -> LeftProgram | None:
        try:
            return LeftProgram(*self.edges[-1]) if self.edges else None
        except ProcessLookupError:
            return None

    @asynccontextmanager
    async def supervisor(self, *, stays: bool = True) -> AsyncIterator[Place]:
        """Run one supervisor's side, which leaves the edge to the next one if ``stays``."""
        counts = Counts(lambda sandbox_id: self.home / f"{sandbox_id}.json")
        made = Inspection(self.program, self.guest.link.guest.relay, counts)
        try:
            await made.start()
            yield Place(self.guest, made, self.authority)
        finally:
            await made.aclose(stay=stays)


@asynccontextmanager
async def house_of(testbed: NetworkTestbed) -> AsyncIterator[tuple[House, Web, int]]:
    """A guest, and a server with TLS that the edge trusts."""
    home = testbed.pins.parent
    own, outside = (home_authority(home / name) for name in ("home.pem", "outside.pem"))
    certificate = certified(outside, [GOOD], home / "server.pem")
    config = {"ca_certificate": own.certificate, "ca_key": own.key, "roots": outside.certificate}
    guardian = lambda: os.pidfd_open(os.getpid(), os.O_NONBLOCK)  # noqa: E731
    try:
        async with (
            knowing(NAMES) as (_, nameserver),
            testbed.guest(lambda: [nameserver]) as guest,
            web(certificate) as (served, port),
        ):
            program = EdgeProgram(
                lambda: (str(edge_path()),), lambda: config, home / "edge.sock", guardian=guardian
            )
            house = House(guest, own, program, home)
            try:
                yield house, served, port
            finally:
                if (left := house._earlier()) is not None:
                    await left.kill()
    finally:
        for name in ("home.pem", "outside.pem", "server.pem", "edge.sock", "s1.json"):
            (home / name).unlink(missing_ok=True)


def rule_for(port: int) -> Rule:
    inject = Inject(secret="key", key="authorization", format="Bearer {}")
    limit = RateLimit(requests=5, per_s=3600, total_bytes=1_000_000)
    return Rule(hosts=(GOOD,), ports=(port,), methods=("GET",), inject=(inject,), limit=limit)


async def test_an_open_connection_with_a_secret_goes_on_and_so_do_limits(testbed: NetworkTestbed) -> None:
    async with house_of(testbed) as (house, served, port):
        rule, secrets = rule_for(port), {"key": "s3cr3t-value"}
        served.answer = lambda seen: seen["headers"].get("authorization", "none")[:6].encode()
        async with house.supervisor() as first:
            first.allow(rule, secrets=secrets)
            address = await address_of(house.guest, GOOD)
            browser = browsing(house.guest, address, GOOD, port, first.trusted)
            fetch = (await browser.__aenter__()).fetch
            assert await fetch("GET", "/1") == (200, b"Bearer")
            was_given = first.inspection._version
        # Without a supervisor the secret is put in, and the rules hold.
        assert await fetch("GET", "/2") == (200, b"Bearer")
        assert (await fetch("POST", "/2", body=b"x"))[0] == 403
        async with house.supervisor() as second:
            assert second.inspection._unclaimed == {"s1"}
            second.allow(rule, secrets=secrets)
            assert second.inspection._inspected["s1"].version > was_given
            assert await fetch("GET", "/3") == (200, b"Bearer")
            second.inspection.forget_others()
            await eventually(lambda: {one.path for one in second.told} >= {"/2", "/3"})
        # In the end the edge dies, and what all of it has counted is in the file.
        async with house.supervisor(stays=False) as third:
            third.allow(rule, secrets=secrets)
            assert await fetch("GET", "/4") == (200, b"Bearer")
        await browser.__aexit__(None, None, None)
        async with house.supervisor(stays=False) as fourth:
            fourth.allow(rule, secrets=secrets)
            async with browsing(house.guest, address, GOOD, port, fourth.trusted) as again:
                assert [(await again.fetch("GET", "/"))[0] for _ in range(2)] == [200, 429]
        assert len(house.edges) == 2
        assert len(served.seen) == 5


async def test_what_is_decided_without_a_supervisor_is_kept_with_its_time(testbed: NetworkTestbed) -> None:
    async with house_of(testbed) as (house, served, port):
        rule = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        served.answer = lambda _: b""
        async with house.supervisor() as first:
            first.allow(rule)
            address = await address_of(house.guest, GOOD)
            browser = browsing(house.guest, address, GOOD, port, first.trusted)
            fetch = (await browser.__aenter__()).fetch
        assert [(await fetch("GET", "/same"))[0] for _ in range(3)] == [200] * 3
        assert (await fetch("POST", "/other", body=b"x"))[0] == 403
        began = time.time()
        await asyncio.sleep(2.5)  # what nobody takes for two seconds is kept
        assert (await fetch("GET", "/last"))[0] == 200
        async with house.supervisor() as second:
            second.allow(rule)
            await eventually(lambda: {one.path for one in second.told} >= {"/last"})
            same, other, last = second.told[-3:]
            assert [(one.path, one.action, one.count) for one in (same, other, last)] == [
                ("/same", "allow", 3),
                ("/other", "deny", 1),
                ("/last", "allow", 1),
            ]
            assert same.until is not None
            assert same.at <= same.until <= began < last.at
            second.inspection.refuse(True)  # as one whose audit log cannot be written
            await second.inspection.hear()  # the edge has taken that
            status, body = await fetch("GET", "/")
            assert (status, b"egress_unnoted" in body) == (503, True)
            second.inspection.refuse(False)
            await second.inspection.hear()
            assert (await fetch("GET", "/"))[0] == 200
        await browser.__aexit__(None, None, None)


async def test_a_connection_that_is_open_while_the_supervisor_is_gone_loses_no_byte(
    testbed: NetworkTestbed,
) -> None:
    async with house_of(testbed) as (house, served, port):
        rule = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        body = os.urandom(16 << 20)
        served.answer = lambda _: body
        async with house.supervisor() as first:
            first.allow(rule)
            address = await address_of(house.guest, GOOD)
            browser = browsing(house.guest, address, GOOD, port, first.trusted)
            fetching = asyncio.create_task((await browser.__aenter__()).fetch("GET", "/"))
            await eventually(lambda: served.seen)
        async with house.supervisor() as second:
            second.allow(rule)
            assert await fetching == (200, body)
        await browser.__aexit__(None, None, None)


async def test_a_canary_that_comes_without_a_supervisor_cuts_and_is_told_to_the_next(
    testbed: NetworkTestbed,
) -> None:
    async with house_of(testbed) as (house, served, port):
        rule, canaries = Rule(hosts=(GOOD,), ports=(port,), protocol="http"), ("AKIA-CANARY-0001",)
        hidden = base64.b64encode(b"xxAKIA-CANARY-0001").decode()
        async with house.supervisor() as first:
            first.allow(rule, canaries=canaries)
            address = await address_of(house.guest, GOOD)
            open_one = browsing(house.guest, address, GOOD, port, first.trusted)
            fetch = (await open_one.__aenter__()).fetch
            assert (await fetch("GET", "/"))[0] == 200
        with pytest.raises(OSError):
            async with browsing(house.guest, address, GOOD, port, first.trusted) as browser:
                await browser.fetch("GET", f"/?q={hidden}")
        with pytest.raises(OSError):
            await fetch("GET", "/")
        assert await house.guest.is_reset(address, port)
        for _ in range(2):  # it dies before it has done anything about that
            async with house.supervisor() as next_one:
                next_one.allow(rule, canaries=canaries)
                await eventually(lambda told=next_one.unplugged: told)
        assert [seen["path"] for seen in served.seen] == ["/"]
        await open_one.__aexit__(OSError, None, None)


async def test_what_no_sandbox_claims_is_forgotten(testbed: NetworkTestbed) -> None:
    async with house_of(testbed) as (house, _, port):
        async with house.supervisor() as first:
            first.allow(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)))
            address = await address_of(house.guest, GOOD)
            browser = browsing(house.guest, address, GOOD, port, first.trusted)
            fetch = (await browser.__aenter__()).fetch
            assert (await fetch("GET", "/"))[0] == 200
        async with house.supervisor() as second:
            second.inspection.forget_others()
            with pytest.raises(OSError):
                for _ in range(100):
                    await fetch("GET", "/")
                    await asyncio.sleep(0.05)
        async with house.supervisor() as third:
            assert third.inspection._unclaimed == set()
        await browser.__aexit__(OSError, None, None)


@pytest.mark.parametrize("changed", ["the authority", "whom to trust"])
async def test_an_edge_with_another_authority_is_replaced_and_with_other_roots_is_not(
    testbed: NetworkTestbed, changed: str
) -> None:
    async with house_of(testbed) as (house, _, port):
        rule = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        async with house.supervisor() as first:
            first.allow(rule)
            address = await address_of(house.guest, GOOD)
            async with browsing(house.guest, address, GOOD, port, first.trusted) as browser:
                assert (await browser.fetch("GET", "/"))[0] == 200
        config, path = dict(house.program.config()), house.home / "other.pem"
        other = home_authority(path)
        path.unlink()
        if changed == "the authority":
            house.authority = other
            config |= {"ca_certificate": other.certificate, "ca_key": other.key}
        else:
            config["roots"] = other.certificate
        house.program = replace(house.program, config=lambda: config)
        async with house.supervisor() as second:
            second.allow(rule)
            async with browsing(house.guest, address, GOOD, port, second.trusted) as browser:
                status, _ = await browser.fetch("GET", "/")
        assert (len(house.edges), status) == ((2, 200) if changed == "the authority" else (1, 502))


@pytest.mark.parametrize("wrong", ["it hangs", "its protocol"])
async def test_an_edge_that_cannot_be_talked_to_is_replaced(
    testbed: NetworkTestbed, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    async with house_of(testbed) as (house, _, port):
        rule = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        async with house.supervisor() as first:
            first.allow(rule)
            address = await address_of(house.guest, GOOD)
            async with browsing(house.guest, address, GOOD, port, first.trusted) as browser:
                assert (await browser.fetch("GET", "/"))[0] == 200
        monkeypatch.setattr(edge_talk, "_HELLO_S", 1.0)
        monkeypatch.setattr(inspection, "_START_S", 0.1)
        if wrong == "it hangs":
            stop(house.edges[0][0])
        else:
            monkeypatch.setattr(edge_talk, "PROTOCOL", 0)
        async with house.supervisor() as second:
            await eventually(lambda: not process_alive(*house.edges[0]))
            monkeypatch.undo()
            second.allow(rule)
            await eventually(second.inspection._ready.is_set)
            async with browsing(house.guest, address, GOOD, port, second.trusted) as browser:
                assert (await browser.fetch("GET", "/"))[0] == 200


async def test_a_relay_that_follows_while_there_is_no_supervisor_is_joined(testbed: NetworkTestbed) -> None:
    async with house_of(testbed) as (house, _, port):
        rule = Rule(hosts=(GOOD,), ports=(port,), methods=("GET",))
        relay = house.guest.link.guest.relay
        async with house.supervisor() as first:
            first.allow(rule)
            address = await address_of(house.guest, GOOD)
            async with browsing(house.guest, address, GOOD, port, first.trusted) as browser:
                assert (await browser.fetch("GET", "/"))[0] == 200
        before = relay.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: relay.pid not in (None, before))
        async with house.supervisor() as second:
            second.allow(rule)
            async with browsing(house.guest, address, GOOD, port, second.trusted) as browser:
                assert (await browser.fetch("GET", "/"))[0] == 200
        assert len(house.edges) == 1


async def test_a_question_is_told_when_the_edge_ends(testbed: NetworkTestbed) -> None:
    async with house_of(testbed) as (house, _, port):
        async with house.supervisor(stays=False) as place:
            policy = Policy(rules=(Rule(hosts=(GOOD,), ports=(port,), methods=("GET",)),))
            place.allow(*policy.rules)
            await eventually(place.inspection._ready.is_set)
            destination = {"name": GOOD, "port": port, "addresses": []}
            request = {"scheme": "https", "method": "GET", "url": f"https://{GOOD}/", "headers": []}
            stop(house.edges[0][0])
            asking = asyncio.create_task(place.inspection.judge(Grant(policy), destination, request))
            await eventually(lambda: place.inspection._judging)
            os.kill(house.edges[0][0], signal.SIGKILL)
            with pytest.raises(Exception, match="gives no answer: it has ended"):
                await asking
