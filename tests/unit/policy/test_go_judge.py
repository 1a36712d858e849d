"""The judge of connections, in Go, says what the tests' own one in Python says: word for word."""

from __future__ import annotations

import ipaddress
import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from atoll.policy import CLOSED, plain_host, spelled_out
from atoll.types import HOST_NAME, Action, Inject, Mcp, Policy, RateLimit, Rule, UpstreamProxy
from atoll.types.internal import SANDBOX_DOMAIN
from tests.unit.policy.policies import OPEN_RANGES, PATTERNS, PORTS, SEEN_PORTS
from tests.unit.policy.reference import BoundedJudge, Judge, Verdict, on_the_wire

T = TypeVar("T")
ROOT = Path(__file__).parents[3]
OWN = "8.8.9.9"
SANDBOX = f"db.{SANDBOX_DOMAIN}"


def words(text: str) -> list[str]:
    return text.split()


MORE_PATTERNS = [
    *PATTERNS,
    SANDBOX,
    f"*.{SANDBOX_DOMAIN}",
    "*.corp",
    "wiki.corp",
    "intranet",
    "bücher.example",
]
GOOD_NAMES = [
    HOST_NAME,
    SANDBOX,
    f"x.{SANDBOX}",
    SANDBOX_DOMAIN,
    f"{'a' * 63}.example",
    ".".join(["a"] * 127),
]
GOOD_NAMES += words("""
    a.example b.a.example c.b.a.example B.A.Example. evila.example example 1.example 0x1.example _srv.a.example
    a--b.example bücher.example xn--bcher-kva.example x.internal wiki.corp corp intranet app.localhost localdomain
    home.arpa
""")
ODD_NAMES = [
    f"{'a' * 64}.example",
    "a" * 260,
    ".".join(["a"] * 128),
    "Ä" * 90,
    "a b",
    "a.example\n",
    "\t\n\r\x00\x7f",
]
ODD_NAMES += ["\u200b", "\U0001f3dd", "\xa0", "\U000e0001", "\u212a.example", "\u0663.example"]
ODD_NAMES += words("""
    . .. a..example a.example.. -a.example a-.example 1.2.3.4 1.2.3.0x7f a.0x a.1 ::1 *.example straße.example
    it's " '" a\\b
""")
ADDRESSES = words("""
    8.8.8.8 8.8.9.9 10.0.0.1 10.9.0.1 127.0.0.1 127.9.9.9 169.254.169.254 198.18.0.7 0.0.0.0 255.255.255.255
    2606:4700::1 ::1 :: fd00::1 fe80::1 2002::1 ::ffff:10.0.0.1 ::FFFF:808:808 ::ffff:0:8.8.8.8 ::8.8.8.8
    64:ff9b::7f00:1 64:ff9b::8.8.8.8 64:ff9b:1::1 1:2:3:4:5:6:7::
""")
ODD_ADDRESSES = ["", "8.8.8.8 ", *words("8.8.8 08.8.8.8 fe80::1%eth0 a.example [::1] 256.1.1.1")]
RANGES = [*OPEN_RANGES]
RANGES += words("""
    10.0.0.0/255.0.0.0 224.0.0.0/3 198.18.0.0/16 ::1 fc00::/6 ::fffe:0:0/95 ::ffff:8.8.8.0/120 64:ff9a::/31
    64:ff9b::/96
""")
ODD_PORTS = [*SEEN_PORTS, 0, -1, 65536]
POLICIES, DESTINATIONS = 500, 16
MODES: list[Literal["enforce", "observe"]] = ["enforce", "enforce", "observe"]
PASSED = ["a.example", "*.a.example", "*", HOST_NAME]
CHANGES: list[dict[str, Any]] = [
    {},
    {},
    {"set_headers": {"x-a": "1"}},
    {"remove_headers": ("x-a",)},
    {"inject": (Inject(secret="key"),)},
    {"inject": (Inject(key="x-auth", format="{id}:{key}{{}}"),)},
    {"limit": RateLimit(bytes_s=1)},
]
CONDITIONS: list[dict[str, Any]] = [
    *[{}] * 8,
    {"protocol": "http"},
    {"methods": ("GET",)},
    {"paths": ("/a",)},
    {"query": {"q": ("1",)}},
    {"headers": {"x-a": ("1",)}},
    {"max_body_bytes": 0},
    {"json": {"a": ("1",)}},
    {"mcp": Mcp(methods=("tools/call",))},
]
Ask = Callable[[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    program = tmp_path_factory.mktemp("judge") / "judge"
    subprocess.run(["go", "test", "-c", "-o", str(program), "./policy"], cwd=ROOT, check=True)
    env = {**os.environ, "ATOLL_TEST_JUDGE": "1"}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as judge:
        assert judge.stdin is not None
        assert judge.stdout is not None
        ways = judge.stdin, judge.stdout

        def asked(question: dict[str, Any]) -> list[dict[str, Any]]:
            ways[0].write(json.dumps(question).encode() + b"\n")
            ways[0].flush()
            answers: list[dict[str, Any]] = json.loads(ways[1].readline())
            return answers

        yield asked
        judge.stdin.close()


class Dice(random.Random):
    """Makes policies and destinations that meet often. Strategies of hypothesis take ten times as long."""

    def some(self, values: Sequence[T], *counts: int) -> tuple[T, ...]:
        return tuple(self.sample(values, self.choice(counts)))

    def rule(self, *, changes: bool = True) -> Rule:
        actions: list[Action] = ["allow", "allow", "deny", "unplug"]
        action = self.choice(actions)
        more = self.choice(CONDITIONS)
        if changes and action == "allow":
            more = {**more, **self.choice(CHANGES)}
        return Rule(
            action=action,
            name=self.choice(["", "", "it's"]),
            hosts=self.some(MORE_PATTERNS, 0, 0, 1, 1, 2),
            addresses=self.some(RANGES, 0, 0, 0, 1, 2),
            ports=self.some(PORTS, 0, 0, 0, 1, 2),
            **more,
        )

    def policy(self) -> Policy:
        proxy = UpstreamProxy(url="http://u:p@8.8.8.8:3128", hosts=self.some(MORE_PATTERNS, 0, 1, 2))
        return Policy(
            rules=tuple(self.rule() for _ in range(self.randrange(6))),
            mode=self.choice(MODES),
            passthrough=self.some(PASSED, 0, 0, 1),
            proxy=self.choice([None, None, None, proxy]),
        )

    def ceiling(self) -> Policy:
        rules = tuple(self.rule(changes=False) for _ in range(self.randrange(4)))
        return Policy(rules=rules, passthrough=self.some(PASSED, 0, 0, 1))

    def destination(self) -> tuple[str | None, list[str], int]:
        names: list[str | None] = [*self.choice([GOOD_NAMES, GOOD_NAMES, GOOD_NAMES, ODD_NAMES]), *[None] * 5]
        addresses = self.choice([ADDRESSES, ADDRESSES, ADDRESSES, [*ADDRESSES, *ODD_ADDRESSES]])
        port = self.choice(self.choice([SEEN_PORTS, SEEN_PORTS, SEEN_PORTS, ODD_PORTS]))
        return self.choice(names), list(self.some(addresses, 1, 1, 2, 3)), port


def answer(verdict: Verdict) -> dict[str, Any]:
    return {
        "action": verdict.action,
        "rule": verdict.rule,
        "kept": list(verdict.kept),
        "reason": verdict.reason,
        "observed": verdict.observed,
        "ceiling": verdict.ceiling,
        "above": list(verdict.above),
    }


def is_own(address: str) -> bool:
    return address == OWN


def test_both_judges_say_the_same(ask: Ask) -> None:
    told: Counter[str] = Counter()
    for seed in range(POLICIES):
        dice = Dice(seed)
        policy = None if seed % 10 == 0 else dice.policy()
        ceiling = dice.ceiling() if policy is not None and seed % 3 == 0 else None
        told.update(_agree(ask, policy, ceiling, [dice.destination() for _ in range(DESTINATIONS)]))
    assert min(told[action] for action in ("allow", "deny", "unplug", "inspect")) > POLICIES / 10, told


def test_both_know_the_same_addresses_that_are_not_public(ask: Ask) -> None:
    found = set()
    for network in map(ipaddress.ip_network, CLOSED):
        first, last = int(network[0]), int(network[-1])
        around = (
            value for value in (first - 1, first, last, last + 1) if 0 <= value < 1 << network.max_prefixlen
        )
        for value in around:
            found.add(str(type(network[0])(value)))
    places = sorted(found)
    everything = Policy(rules=(Rule(),))
    # A rule that opens whatever can be opened.
    opening = Policy(rules=(Rule(addresses=tuple(CLOSED)),))
    for policy in (everything, opening):
        asked = [{"port": 80, "addresses": [{"address": place}]} for place in places]
        said = ask({"policy": spelled_out(policy), "ceiling": None, "destinations": asked})
        told = [one["connection"] for one in said]
        assert told == [answer(Judge(policy).connection(None, place, 80)) for place in places]


def _agree(
    ask: Ask,
    policy: Policy | None,
    ceiling: Policy | None,
    destinations: list[tuple[str | None, list[str], int]],
) -> Iterator[str]:
    if policy is None:
        # Without rules a guest resolves names by itself, and tries what it finds. The wire looks at no name then.
        destinations = [
            (name, found[:1], port)
            for name, found, port in destinations
            if (name is None or plain_host(name)) and 0 < port < 65_536
        ]
    question = {
        "policy": None if policy is None else spelled_out(policy),
        "ceiling": None if ceiling is None else spelled_out(ceiling),
        "destinations": [
            {
                "name": name if name is None or name.isascii() else plain_host(name) or name,
                "port": port,
                "addresses": [{"address": one, "own": one == OWN} for one in addresses],
            }
            for name, addresses, port in destinations
        ],
    }  # fmt: skip
    for (name, addresses, port), said in zip(destinations, ask(question), strict=True):
        where = f"{policy}\n{ceiling}\n{name!r} {addresses} {port}"
        if set(addresses) <= set(ADDRESSES):
            verdict, to = on_the_wire(policy, ceiling, name, addresses, port, is_own)
            assert said["way"] == _told(answer(verdict), policy), where
            yield verdict.action
            if verdict.action in ("allow", "inspect"):
                assert said["address"] == to, where
        if policy is None:
            continue
        judge = Judge(policy)
        assert said["connection"] == answer(judge.connection(name, addresses[0], port)), where
        if name is not None:
            assert said["name"] == answer(judge.name(name)), where
            assert said["unresolved"] == answer(judge.connection(name, None, port)), where
            if addresses[0] in ADDRESSES:
                assert said["knows"] == judge.knows_address(name, addresses[0]), where
            if (plain := plain_host(name)) is not None:
                both = judge if ceiling is None else BoundedJudge(policy, ceiling)
                assert said["proxied"] == judge.proxied(plain), where
                assert said["looks_into"] == both.looks_into(plain), where


def _told(verdict: dict[str, Any], policy: Policy | None) -> dict[str, Any]:
    """As the test of a policy says it, which tells also why something is allowed without rules."""
    allowed = policy is None and verdict["action"] == "allow"
    return {**verdict, "reason": "every public address is allowed"} if allowed else verdict
