"""What a policy lets through at worst, by a table, and against the judge of connections."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from atoll.policy import EVERYTHING, closed, matches_host, plain, policy_of
from atoll.policy.ports import port_ranges
from atoll.policy.ranges import network_of
from atoll.policy.reaches import reaches_of, within_ceiling
from atoll.types import HOST_NAME, AskTerms, EgressPolicy, Inject, Mcp, Policy, RateLimit, Reach, Rule
from tests.unit.policy.policies import DESTINATIONS, POLICIES, Destination, rules, valid
from tests.unit.policy.reference import Judge

RANDOM = settings(deadline=None, derandomize=True, database=None, max_examples=250)
WEB = ("80", "443")


def of(*given: Rule, **more: Any) -> Policy:
    return Policy(rules=given, **more)


def deny(**terms: Any) -> Rule:
    return Rule(action="deny", **terms)


ANY_NAME = Rule(hosts=("*",))
BANK = Rule(action="ask", hosts=("bank.example",), methods=("POST",), inject=(Inject(secret="bank"),))
# The policy, and what its reaches say.
TABLE: list[tuple[str, EgressPolicy, list[str]]] = [
    ("internet", "internet", ["anything over TCP to every public address, and names to nameservers"]),
    ("none", "none", []),
    ("reading", "web-read-only", ["GET, HEAD requests to every public name, ports 80, 443"]),
    ("packages", "packages", ["GET, HEAD requests to pip.example, ports 80, 443"]),
    ("no rules", Policy(), []),
    ("every name", of(ANY_NAME), ["anything over TCP to every public name"]),
    ("every address", of(Rule()), ["anything over TCP to every public address, and names to nameservers"]),
    ("names alone", of(Rule(hosts=("a.example", "*.b.example"))), ["anything over TCP to a.example, *.b.example"]),
    ("in ASCII", of(Rule(hosts=("Bücher.example.",))), ["anything over TCP to xn--bcher-kva.example"]),
    ("many", of(Rule(hosts=tuple("abcdef"))), ["anything over TCP to a, b, c, d and 2 more"]),
    ("a port", of(Rule(hosts=("a.example",), ports=(22,))), ["anything over TCP to a.example, port 22"]),
    ("ports", of(Rule(hosts=("a.b",), ports=("1-9",))), ["anything over TCP to a.b, ports 1-9"]),
    ("observes", of(deny(hosts=("*",)), mode="observe"),
     ["anything over TCP to every public address, and names to nameservers"]),
    ("observes, and opens", of(deny(ports=(25,)), Policy.expose_host(80), mode="observe"),
     ["anything over TCP to every public address, and names to nameservers",
      "anything over TCP to the host that it runs on, port 80"]),
    ("nobody is asked, so nothing is changed", of(BANK, mode="observe"),
     ["anything over TCP to every public address, and names to nameservers"]),
    ("observes, and sends a secret", of(Rule(hosts=("a.b",), inject=(Inject(secret="x"),)), mode="observe"),
     ["anything over TCP to every public address, and names to nameservers",
      "anything over TCP to a.b, ports 80, 443, with the secret x"]),
    ("asks", of(BANK),
     ["POST requests to bank.example, ports 80, 443, with the secret bank, each after a person has approved it"]),
    ("asks two", of(Rule(action="ask", hosts=("a.b",), ask=AskTerms(approvals=2))),
     ["requests of HTTP to a.b, ports 80, 443, each after two people have approved it"]),
    ("asks first", of(BANK, Rule(hosts=("bank.example",))),
     ["POST requests to bank.example, ports 80, 443, with the secret bank, each after a person has approved it",
      "anything over TCP to bank.example; but rule 1 asks first about POST requests to bank.example"]),
    ("a deny narrows", of(deny(name="no mail", ports=(25, 465)), ANY_NAME),
     ["anything over TCP to every public name; but rule 1 (no mail) refuses ports 25, 465"]),
    ("a deny narrows a name", of(deny(hosts=("x.a.example",)), Rule(hosts=("*.a.example",))),
     ["anything over TCP to *.a.example; but rule 1 refuses x.a.example"]),
    ("a deny shuts one of two", of(deny(hosts=("*.b.example",)), Rule(hosts=("a.example", "x.b.example"))),
     ["anything over TCP to a.example"]),
    ("a deny elsewhere", of(deny(hosts=("b.example",)), Rule(hosts=("a.example",))),
     ["anything over TCP to a.example"]),
    ("a deny after", of(Rule(hosts=("a.example",)), deny(hosts=("*",))), ["anything over TCP to a.example"]),
    ("a deny of requests", of(deny(hosts=("a.example",), methods=("PUT",)), Rule(hosts=("a.example",))),
     ["anything over TCP to a.example; but rule 1 refuses PUT requests to a.example"]),
    ("a deny of other methods", of(deny(hosts=("a.b",), methods=("PUT",)), Rule(hosts=("a.b",), methods=("GET",))),
     ["GET requests to a.b, ports 80, 443"]),
    ("many denies", of(*(deny(hosts=(f"{n}.a.b",)) for n in "vwxyz"), Rule(hosts=("*.a.b",))),
     ["anything over TCP to *.a.b; but rule 1 refuses v.a.b, and rule 2 refuses w.a.b, and rule 3 refuses x.a.b, "
      "and 2 more rules refuse or ask"]),
    ("unplugs", of(Rule(action="unplug", hosts=("bad.example",)), ANY_NAME),
     ["anything over TCP to every public name; but rule 1 refuses bad.example"]),
    ("conditions", of(Rule(hosts=("a.b",), methods=("GET",), paths=("/v1/**",))),
     ["GET requests that meet more conditions to a.b, ports 80, 443"]),
    ("tools", of(Rule(hosts=("a.b",), mcp=Mcp(tools=("read",)))),
     ["requests of HTTP that meet more conditions to a.b, ports 80, 443"]),
    ("a limit", of(Rule(hosts=("a.b",), limit=RateLimit(requests=9))),
     ["requests of HTTP to a.b, ports 80, 443, within a limit"]),
    ("the host", of(Policy.expose_host(8080)), ["anything over TCP to the host that it runs on, port 8080"]),
    ("a sandbox", of(Policy.expose_sandbox("db", 5432)), ["anything over TCP to the sandbox db, port 5432"]),
    ("all sandboxes", of(Rule(hosts=("*.sandbox.atoll.internal",))),
     ["anything over TCP to every other sandbox of the same team"]),
    ("no wildcard opens the host", of(Rule(hosts=("*.internal",))), ["anything over TCP to *.internal"]),
    ("a private range", of(Rule(addresses=("10.1.0.0/16",), ports=(22,))),
     ["anything over TCP to 10.1.0.0/16, which is not public, port 22"]),
    ("a name in a private range", of(Rule(hosts=("db.example",), addresses=("10.1.0.0/16", "8.8.8.0/24"))),
     ["anything over TCP to db.example at 8.8.8.0/24",
      "anything over TCP to db.example at 10.1.0.0/16, which is not public"]),
    ("passthrough ends rules about requests",
     of(Rule(hosts=("a.example", "b.example"), methods=("GET",)), passthrough=("*.x", "a.example")),
     ["GET requests to b.example, ports 80, 443"]),
    ("passthrough with a plain rule", of(ANY_NAME, passthrough=("a.example",)),
     ["anything over TCP to every public name"]),
]  # fmt: skip


@pytest.mark.parametrize(("network", "said"), [case[1:] for case in TABLE], ids=[case[0] for case in TABLE])
def test_a_policy_in_plain_sentences(network: EgressPolicy, said: list[str]) -> None:
    reaches = reaches_of(policy_of(network, ["pip.example"]))
    assert [reach.text for reach in reaches] == [f"It sends {text}." for text in said]


def narrowed(policy: Policy | None, ceiling: Policy) -> list[str]:
    found = within_ceiling(reaches_of(policy), reaches_of(ceiling))
    return [reach.text.removeprefix("It sends ").removesuffix(".") for reach in found]


@pytest.mark.parametrize(
    ("policy", "ceiling", "said"),
    [
        (None, EVERYTHING, ["anything over TCP to every public address, and names to nameservers"]),
        (None, Policy(), []),
        (None, of(Rule(hosts=("*.a.b",), methods=("GET",))), ["GET requests to *.a.b, ports 80, 443"]),
        (of(Rule(hosts=("x.a.b", "c.d"))), of(Rule(hosts=("*.a.b",))), ["anything over TCP to x.a.b"]),
        (of(Rule(hosts=("a.b",), ports=(22,))), of(Rule(hosts=("a.b",), ports=(443,))), []),
        (of(Rule(hosts=("a.b",), methods=("PUT",))), of(Rule(hosts=("*",), methods=("GET",))), []),
        (of(Policy.expose_host(80)), EVERYTHING, []),
        (
            of(Policy.expose_host(80, 81)),
            of(Policy.expose_host(81, 82)),
            ["anything over TCP to the host that it runs on, port 81"],
        ),
        (of(Rule(addresses=("10.0.0.0/8",))), EVERYTHING, []),
        (
            of(Rule(addresses=("10.0.0.0/8",))),
            of(Rule(addresses=("10.1.0.0/16",))),
            ["anything over TCP to 10.1.0.0/16, which is not public"],
        ),
        (
            of(ANY_NAME),
            of(deny(ports=(25,)), Rule()),
            ["anything over TCP to every public name; but rule 1 refuses port 25 (ceiling)"],
        ),
    ],
)
def test_a_ceiling_narrows_a_policy(policy: Policy | None, ceiling: Policy, said: list[str]) -> None:
    assert narrowed(policy, ceiling) == said


def test_what_is_too_much_to_compare_is_told_without_the_ceiling() -> None:
    many = of(Rule(hosts=tuple(f"n{n}.example" for n in range(900))))
    own = reaches_of(many)
    assert within_ceiling(own, reaches_of(many)) == own


def test_a_large_policy_is_told_in_bounded_time() -> None:
    odd = [deny(hosts=(f"x{n}.example", f"y{n}.example"), ports=(n,)) for n in range(1, 500)]
    even = [Rule(hosts=(f"*.d{n}.example", "*.example"), ports=(n,)) for n in range(1, 500)]
    found = reaches_of(of(*odd, *even))
    assert len(found) == 499
    assert found[-1].unless == ("perhaps earlier rules refuse more",)


@RANDOM
@given(POLICIES, rules())
def test_a_rule_at_the_end_never_removes_a_power(policy: Policy, more: Rule) -> None:
    before, after = (
        reaches_of(policy),
        reaches_of(Policy(**{**fields(policy), "rules": (*policy.rules, more)})),
    )
    assert after[: len(before)] == before


@RANDOM
@given(POLICIES, DESTINATIONS)
def test_whatever_may_pass_is_told(policy: Policy, to: Destination) -> None:
    assume(valid(policy))
    if may_pass(policy, to):
        assert any(covers(reach, to) for reach in reaches_of(policy)), to


@RANDOM
@given(POLICIES, st.lists(rules(), max_size=4), DESTINATIONS)
def test_whatever_passes_a_policy_and_a_ceiling_is_told(
    policy: Policy, above: list[Rule], to: Destination
) -> None:
    ceiling = of(*above)
    assume(valid(policy) and valid(ceiling))
    if may_pass(policy, to) and may_pass(ceiling, to):
        both = within_ceiling(reaches_of(policy), reaches_of(ceiling))
        assert any(covers(reach, to) for reach in both), to


def fields(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__struct_fields__}


def may_pass(policy: Policy, to: Destination) -> bool:
    """Whether something may pass to a destination, by the judge that stands for the one on the wire."""
    found = Judge(policy).connection(to.name, to.address, to.port)
    if found.action != "inspect":
        return found.action == "allow"
    return policy.mode == "observe" or any(policy.rules[number].may_pass for number in found.kept)


def covers(reach: Reach, to: Destination) -> bool:
    address = plain(to.address)
    ports = port_ranges(reach.ports) or ((1, 65_535),)
    if not any(first <= to.port <= last for first, last in ports):
        return False
    if to.name == HOST_NAME and address.is_loopback:
        return reach.kind == "host"
    named = not reach.hosts or (
        to.name is not None and any(matches_host(host, to.name) for host in reach.hosts)
    )
    ranged = not reach.addresses or any(address in network_of(text) for text in reach.addresses)
    is_shut = closed(address) is not None
    return named and ranged and reach.kind not in ("host", "sandbox") and is_shut == (reach.kind == "private")
