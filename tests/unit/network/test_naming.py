"""Whatever a guest asks, the answers under a policy with rules are answers or nothing, and nothing leaks."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.network.egress import Destination, Egress, Outside
from atoll.network.names import NameTable
from atoll.network.naming import NamedAnswers
from atoll.network.resolver import Resolver
from atoll.policy import Canaries, Verdict, policy_of
from atoll.types import EgressDecision, EgressPolicy, Policy

FUZZ = settings(
    deadline=None, max_examples=300, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
LABEL = st.one_of(st.binary(max_size=64), st.sampled_from([b"good", b"example", b"com", b"in-addr", b"arpa"]))
NAMES = st.lists(LABEL, max_size=6).map(
    lambda labels: b"".join(bytes([len(label) & 0xFF]) + label for label in labels) + b"\0"
)
MESSAGES = st.builds(
    lambda numbers, name, kind, rest: (
        struct.pack(">6H", *numbers) + name + struct.pack(">HH", kind, 1) + rest
    ),
    st.tuples(
        st.integers(0, 65535),
        st.sampled_from([0x0100, 0x0000, 0x0120, 0x2100]),
        st.just(1),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    NAMES,
    st.one_of(st.integers(0, 300), st.just(1), st.just(65535)),
    st.binary(max_size=40),
)


class _Nobody:
    """Nameservers that note who wanted to ask."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> Sequence[tuple[str, int]]:
        self.asked += 1
        return []


def _answers(policy: EgressPolicy, nameservers: _Nobody, *, ceiling: Policy | None = None) -> NamedAnswers:
    resolver = Resolver(nameservers)
    egress = Egress(NameTable(Path("/nonexistent/names")), Outside(resolver, lambda _: False))
    egress.set(policy_of(policy), ceiling)
    return NamedAnswers(egress, resolver)


@FUZZ
@given(message=MESSAGES)
def test_any_question_gets_an_answer_of_its_own_or_none(message: bytes) -> None:
    nameservers = _Nobody()
    answer = asyncio.run(_answers(Policy.allow("good.example.com"), nameservers).answer(message))
    if answer is not None:
        assert answer[:2] == message[:2]
        assert dns.message.from_wire(answer).flags & dns.flags.QR
    if b"\x04good\x07example\x03com\0" not in message.lower():
        assert nameservers.asked == 0


def _code_of(answers: NamedAnswers, name: str, kind: str = "A") -> dns.rcode.Rcode:
    query = dns.message.make_query(name, kind)
    answer = asyncio.run(answers.answer(query.to_wire()))
    assert answer is not None
    return dns.message.from_wire(answer).rcode()


def test_a_name_that_the_policy_or_the_ceiling_denies_is_asked_of_nobody() -> None:
    for policy in ("internet", Policy.allow("*"), Policy.allow("a.example.com", "b.example.com")):
        nameservers = _Nobody()
        answers = _answers(policy, nameservers, ceiling=Policy.allow("a.example.com", "c.example.com"))
        assert answers.needed
        assert _code_of(answers, "b.example.com") == dns.rcode.NXDOMAIN
        if policy not in ("internet", Policy.allow("*")):
            assert _code_of(answers, "c.example.com", "TXT") == dns.rcode.NXDOMAIN
        assert nameservers.asked == 0
        assert _code_of(answers, "a.example.com") == dns.rcode.SERVFAIL
        assert nameservers.asked == 1


def test_a_name_that_is_allowed_is_asked_and_no_other_one() -> None:
    nameservers = _Nobody()
    answers = _answers(Policy.allow("*.example.com"), nameservers)

    def code_of(name: str, kind: str = "A") -> dns.rcode.Rcode:
        return _code_of(answers, name, kind)

    assert code_of("example.com") == dns.rcode.NXDOMAIN
    assert code_of("xexample.com") == dns.rcode.NXDOMAIN
    assert nameservers.asked == 0
    assert code_of("a.example.com") == dns.rcode.SERVFAIL  # there is no nameserver
    assert nameservers.asked == 1
    assert code_of("a.example.com", "AAAA") == dns.rcode.NOERROR
    assert code_of("a.example.com", "HTTPS") == dns.rcode.NOERROR
    assert code_of("a.example.com", "ANY") == dns.rcode.NOTIMP
    assert nameservers.asked == 1


def test_a_refusal_says_why_to_those_who_can_hear_it() -> None:
    answers = _answers(Policy.allow("example.com"), _Nobody())

    def told(name: str, **options: int) -> tuple[int, list[tuple[int, str]]]:
        query = dns.message.make_query(name, "A", **options)  # type: ignore[arg-type]
        wire = asyncio.run(answers.answer(query.to_wire()))
        assert wire is not None
        assert len(wire) <= 512
        answer = dns.message.from_wire(wire)
        errors = [option for option in answer.options if isinstance(option, dns.edns.EDEOption)]
        return answer.edns, [(error.code, error.text or "") for error in errors]

    assert told("other.example", use_edns=0) == (0, [(15, "no rule allows other.example")])
    assert told("other.example", use_edns=-1) == (-1, [])
    assert told("example.com", use_edns=0) == (0, [])
    longest = ".".join(["x" * 63] * 3 + ["y" * 59])
    assert told(longest, use_edns=0)[1][0][1].startswith("no rule allows xxx")


class _LeadsInside(Resolver):
    """A resolver of a network in which each name leads to the same address."""

    def __init__(self, address: str) -> None:
        super().__init__(_Nobody())
        self._leads_to = address

    async def addresses(self, name: str) -> list[str]:
        return [self._leads_to]


@pytest.mark.parametrize("address", ["10.11.12.13", "fd00::12:13", "203.0.113.14"])
def test_who_asks_for_a_name_is_told_that_it_leads_inside_and_not_to_which_address(address: str) -> None:
    resolver = _LeadsInside(address)
    egress = Egress(NameTable(Path("/dev/null")), Outside(resolver, lambda own: own == "203.0.113.14"))
    decisions: list[EgressDecision] = []
    egress.watch(decisions.append, lambda _: None)
    name = "wiki.corp.example"
    dialled = egress.names.address_of(name)
    assert dialled is not None
    there = egress.destination(dialled, 443)
    reasons = []
    for policy in (None, Policy.allow("*"), Policy(mode="observe")):
        egress.set(policy)
        reasons.append(asyncio.run(egress.decide(there))[0].reason)
        reasons.append(egress.again(there, address).reason)
    egress.set(Policy.allow("*"))
    query = dns.message.make_query(name, "A", use_edns=0)
    wire = asyncio.run(NamedAnswers(egress, resolver).answer(query.to_wire()))
    assert wire is not None
    answer = dns.message.from_wire(wire)
    reasons += [option.text or "" for option in answer.options if isinstance(option, dns.edns.EDEOption)]
    reasons += [decision.reason for decision in decisions]
    assert reasons
    assert {reason for reason in reasons if address in reason} == set()
    assert all("leads to an address that is" in reason for reason in reasons), reasons
    # who knows the address is told why it is shut
    egress.set(None)
    by_address = egress.at_once(Destination(None, address, 443))
    assert by_address is not None
    assert by_address.reason.startswith(f"{address} is ")


def test_the_name_of_a_sandbox_is_asked_of_nobody_also_when_the_rules_are_gone() -> None:
    nameservers, name = _Nobody(), "db.sandbox.atoll.internal"
    resolver = Resolver(nameservers)
    egress = Egress(NameTable(Path("/dev/null")), Outside(resolver, lambda _: False))
    egress.set(Policy(rules=(Policy.expose_sandbox("db", 80),)))
    answers = NamedAnswers(egress, resolver)
    assert _code_of(answers, name) == dns.rcode.NOERROR
    assert _code_of(answers, name, "TXT") == dns.rcode.NOERROR
    assert _code_of(answers, "web.sandbox.atoll.internal") == dns.rcode.NXDOMAIN
    address = egress.names.address_of(name)
    assert address is not None
    there = egress.destination(address, 80)
    assert asyncio.run(egress.decide(there))[0].action == "allow"
    egress.set(None)
    assert asyncio.run(egress.decide(there))[0] == Verdict("deny", reason=f"no rule exposes {name}")
    assert nameservers.asked == 0


def test_a_canary_in_a_name_unplugs_and_is_asked_of_nobody() -> None:
    nameservers, reasons = _Nobody(), list[str]()
    resolver = Resolver(nameservers)
    egress = Egress(NameTable(Path("/nonexistent/names")), Outside(resolver, lambda _: False))
    egress.set(Policy.allow("*.example.com"))
    egress.canaries = Canaries(["AKIAFAKEKEY1"])
    egress.watch(lambda _: None, reasons.append)
    answers = NamedAnswers(egress, resolver)
    assert _code_of(answers, "akiafake.key1.example.com", "TXT") == dns.rcode.NXDOMAIN
    assert len(reasons) == 1
    assert "canary" in reasons[0]
    assert nameservers.asked == 0
    _code_of(answers, "a.example.com")
    assert len(reasons) == 1
