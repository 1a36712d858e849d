from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings

from atoll.policy import closed, plain
from atoll.types import HOST_NAME, Policy, Rule
from atoll.types.internal import SANDBOX_DOMAIN
from tests.unit.policy.policies import ADDRESSES, DESTINATIONS, NAMES, POLICIES, SEEN_PORTS, Destination, kept
from tests.unit.policy.reference import Judge, Verdict

PUBLIC = "8.8.8.8"
RANDOM = settings(deadline=None, derandomize=True, database=None, max_examples=250)


def verdict(policy: Policy, name: str | None, address: str = PUBLIC, port: int = 443) -> Verdict:
    return Judge(policy).connection(name, address, port)


def action(policy: Policy, name: str | None, address: str = PUBLIC, port: int = 443) -> str:
    return verdict(policy, name, address, port).action


def of(*rules: Rule, observe: bool = False, passthrough: tuple[str, ...] = ()) -> Policy:
    return Policy(rules=rules, mode="observe" if observe else "enforce", passthrough=passthrough)


def test_without_a_rule_nothing_is_allowed_and_the_reason_says_so() -> None:
    assert verdict(Policy(), "a.example") == Verdict("deny", reason="no rule allows a.example:443")
    assert verdict(Policy(), None) == Verdict("deny", reason="no rule allows 8.8.8.8:443")


def test_an_allow_list_without_a_name_allows_nothing() -> None:
    assert action(Policy.allow(), "a.example") == "deny"
    assert action(Policy.allow(), None) == "deny"


def test_the_first_rule_that_matches_decides() -> None:
    narrow_first = of(Rule(action="deny", hosts=("x.a.example",)), Rule(hosts=("*.a.example",)))
    assert action(narrow_first, "x.a.example") == "deny"
    assert action(narrow_first, "y.a.example") == "allow"
    assert verdict(narrow_first, "y.a.example").rule == 1
    wide_first = of(Rule(hosts=("*.a.example",)), Rule(action="deny", hosts=("x.a.example",)))
    assert verdict(wide_first, "x.a.example") == Verdict("allow", 0)


@pytest.mark.parametrize("hosts", [("a.b.example",), ("*.b.example",), ("*.example",), ("*",), ()])
@pytest.mark.parametrize("others", [("a.b.example",), ("*.b.example",), ("*.example",), ("*",), ()])
def test_the_order_of_rules_counts_and_not_how_narrow_their_patterns_are(
    hosts: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert action(of(Rule(hosts=hosts), Rule(action="deny", hosts=others)), "a.b.example") == "allow"
    assert action(of(Rule(action="deny", hosts=hosts), Rule(hosts=others)), "a.b.example") == "deny"


def test_rules_by_name_do_not_match_bare_addresses() -> None:
    assert action(of(Rule(hosts=("*",))), None) == "deny"
    assert action(of(Rule()), None) == "allow"
    assert action(of(Rule(action="deny", hosts=("*",)), Rule()), None) == "allow"


def test_a_refusal_names_the_rule_and_the_destination() -> None:
    denied = of(Rule(action="deny", name="no spying", hosts=("spy.example",)), Rule(hosts=("*",)))
    assert verdict(denied, "spy.example").reason == "rule 1 (no spying) denies spy.example:443"
    unplugged = of(Rule(action="unplug", hosts=("spy.example",)))
    assert verdict(unplugged, "spy.example") == Verdict(
        "unplug", 0, reason="rule 1 unplugs at spy.example:443"
    )


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_an_allowed_name_does_not_lead_to_an_address_that_is_not_public(address: str) -> None:
    told = verdict(of(Rule(hosts=("a.example",)), Rule()), "a.example", address)
    assert told.action == "deny"
    assert told.reason == f"a.example leads to an address that is {closed(plain(address))}"


def test_a_rule_with_a_range_opens_that_range_and_nothing_beside_it() -> None:
    policy = of(Rule(hosts=("wiki.corp",), addresses=("10.1.0.0/16",), ports=(443,)))
    assert action(policy, "wiki.corp", "10.1.2.3") == "allow"
    assert action(policy, "wiki.corp", "10.2.2.3") == "deny"
    assert action(policy, "wiki.corp", PUBLIC) == "deny"
    assert action(policy, "other.corp", "10.1.2.3") == "deny"
    assert action(policy, None, "10.1.2.3") == "deny"
    assert action(policy, "wiki.corp", "10.1.2.3", 80) == "deny"
    assert action(policy, "wiki.corp", "::ffff:10.1.2.3") == "allow"


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.0/8", "127.0.0.1"), ("0.0.0.0/0", "10.0.0.1"), ("8.0.0.0/5", "10.0.0.1"), ("::/0", "::1")],
)
def test_no_range_opens_what_it_does_not_name_as_not_public_even_unchecked(text: str, address: str) -> None:
    assert action(of(Rule(addresses=(text,))), None, address) == "deny"


def test_a_range_restricts_what_a_name_resolves_to() -> None:
    policy = of(Rule(action="deny", addresses=("8.8.8.0/24",)), Rule(hosts=("*",)))
    assert action(policy, "a.example", "8.8.8.8") == "deny"
    assert action(policy, "a.example", "8.8.9.8") == "allow"


def test_a_denied_range_is_denied_under_an_ipv6_address_that_carries_it() -> None:
    policy = of(Rule(action="deny", addresses=("8.8.8.0/24",)), Rule())
    assert action(policy, None, "::ffff:8.8.8.8") == "deny"
    assert action(policy, None, "64:ff9b::808:808") == "deny"


@pytest.mark.parametrize("name", ["A.Example", "a.example.", "A.EXAMPLE."])
def test_a_name_is_judged_in_its_plain_form_whoever_asks(name: str) -> None:
    assert action(of(Rule(action="deny", hosts=("a.example",)), Rule()), name) == "deny"


@pytest.mark.parametrize("name", ["", "10.0.0.1", "a..example", "0x7f000001"])
def test_a_name_that_is_none_is_denied(name: str) -> None:
    assert verdict(of(Rule()), name).reason == f"{name!r} is no host name"
    assert not Judge(of(Rule())).knows_name(name)


@pytest.mark.parametrize("address", ["", "x", "fe80::1%eth0", "2606:4700::1%1", "a.example"])
def test_an_address_that_is_none_is_denied(address: str) -> None:
    for policy in (of(Rule()), of(observe=True)):
        assert verdict(policy, None, address).reason == f"{address!r} is no address to connect to"


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_denied(port: int) -> None:
    for policy in (of(Rule()), of(observe=True)):
        assert verdict(policy, None, PUBLIC, port) == Verdict("deny", reason=f"{port} is not a port")


def test_rules_about_requests_are_left_to_the_edge() -> None:
    get = Rule(hosts=("a.example",), methods=("GET",))
    assert verdict(of(get), "a.example") == Verdict("inspect", kept=(0,))
    assert verdict(of(get), "b.example").action == "deny"


def test_what_is_left_to_the_edge_ends_at_the_first_rule_without_conditions() -> None:
    get, tcp = Rule(hosts=("*",), methods=("GET",)), Rule(hosts=("a.example",))
    http = Rule(hosts=("a.example",), protocol="http")
    other = Rule(hosts=("c.example",), methods=("PUT",))
    assert verdict(of(get, other, http, tcp, get), "a.example").kept == (0, 2, 3)
    assert verdict(of(tcp, get), "a.example") == Verdict("allow", 0)


def test_a_rule_about_requests_without_ports_means_80_and_443() -> None:
    policy = of(Rule(hosts=("*",), methods=("GET",)))
    assert [action(policy, "a.example", port=port) for port in (80, 443, 22, 8080)] == [
        "inspect",
        "inspect",
        "deny",
        "deny",
    ]
    given = of(Rule(hosts=("*",), methods=("GET",), ports=(8080,)))
    assert [action(given, "a.example", port=port) for port in (80, 8080)] == ["deny", "inspect"]


def test_a_passed_through_name_is_judged_by_name_and_port_alone() -> None:
    rules = (
        Rule(action="deny", hosts=("*",), methods=("POST",)),
        Rule(hosts=("*.pinned.example",), ports=(443,)),
    )
    policy = of(*rules, passthrough=("*.Pinned.example",))
    assert verdict(policy, "a.pinned.example") == Verdict("allow", 1)
    assert action(policy, "a.pinned.example", port=80) == "deny"
    assert action(of(*rules), "a.pinned.example") == "inspect"
    assert action(of(rules[0], passthrough=("*",)), "a.example") == "deny"


def test_observing_lets_through_what_no_rule_allows_and_says_what_would_have_been() -> None:
    observed = of(
        Rule(action="deny", hosts=("a.example",)), Rule(action="unplug", hosts=("b.example",)), observe=True
    )
    for name, rule, reason in (
        ("a.example", 0, "rule 1 denies a.example:443"),
        ("b.example", 1, "rule 2 unplugs at b.example:443"),
        ("c.example", None, "no rule allows c.example:443"),
    ):
        assert verdict(observed, name) == Verdict("allow", rule, reason=reason, observed=True)


@pytest.mark.parametrize(
    "rules",
    [
        (),
        (Rule(hosts=("*",)),),
        (Rule(action="deny", hosts=("*",), methods=("POST",)),),
        (Rule(action="unplug", methods=("POST",)), Rule()),
        (Rule(addresses=("10.9.0.0/16",)),),
    ],
)
def test_observing_never_lets_through_to_what_no_rule_opens(rules: tuple[Rule, ...]) -> None:
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "::1"):
        assert action(of(*rules, observe=True), "a.example", address) == "deny"
    assert action(of(*rules, observe=True), HOST_NAME, "127.0.0.1") == "deny"
    assert action(of(*rules, observe=True), HOST_NAME, "127.0.0.1", 80) == "deny"


def test_the_hosts_own_ports_are_opened_by_their_exact_name_alone() -> None:
    assert action(of(Policy.expose_host(8080)), HOST_NAME, "127.0.0.1", 8080) == "allow"
    assert action(of(Policy.expose_host(8080)), HOST_NAME, "127.0.0.1", 8081) == "deny"
    for hosts in ((), ("*",), ("*.internal",), ("*.atoll.internal",)):
        assert action(of(Rule(hosts=hosts)), HOST_NAME, "127.0.0.1") == "deny"
        assert not Judge(of(Rule(hosts=hosts))).knows_name(HOST_NAME)
    assert action(of(Policy.expose_host(8080)), "other.internal", "127.0.0.1", 8080) == "deny"
    assert action(of(Policy.expose_host(8080)), None, "127.0.0.1", 8080) == "deny"


def test_the_hosts_name_opens_its_loopback_interface_and_no_other_address() -> None:
    policy = of(Policy.expose_host(8080))
    for address in ("10.0.0.1", "169.254.169.254", PUBLIC):
        assert verdict(policy, HOST_NAME, address, 8080) == Verdict(
            "deny", reason=f"{address} is no address of {HOST_NAME}"
        )


@pytest.mark.parametrize("hosts", [(), ("*",), ("*.internal",), (HOST_NAME,)])
def test_a_pattern_shuts_the_hosts_own_ports_too(hosts: tuple[str, ...]) -> None:
    policy = of(Rule(action="deny", hosts=hosts, ports=(22,)), Rule(hosts=(HOST_NAME,)))
    assert action(policy, HOST_NAME, "127.0.0.1", 22) == "deny"
    assert action(policy, HOST_NAME, "127.0.0.1", 80) == "allow"


def test_a_sandboxs_ports_are_opened_by_its_name_or_the_pattern_of_all_of_them() -> None:
    name = f"db.{SANDBOX_DOMAIN}"
    for rule in (Policy.expose_sandbox("db", 5432), Rule(hosts=(f"*.{SANDBOX_DOMAIN}",), ports=(5432,))):
        assert action(of(rule), name, "127.0.0.1", 5432) == "allow"
        assert action(of(rule), name, "127.0.0.1", 5433) == "deny"
        assert action(of(rule), name, PUBLIC, 5432) == "deny"
        assert action(of(rule), None, "127.0.0.1", 5432) == "deny"
        assert action(of(rule), HOST_NAME, "127.0.0.1", 5432) == "deny"
        assert Judge(of(rule)).knows_name(name)
        assert not Judge(of(rule)).looks_into(name)
    assert action(of(Policy.expose_sandbox("web", 5432)), name, "127.0.0.1", 5432) == "deny"
    for hosts in ((), ("*",), ("*.internal",), ("*.atoll.internal",), (SANDBOX_DOMAIN,), (HOST_NAME,)):
        for observe in (False, True):
            assert action(of(Rule(hosts=hosts), observe=observe), name, "127.0.0.1") == "deny"
            assert not Judge(of(Rule(hosts=hosts), observe=observe)).knows_name(name)
    unknown = Judge(Policy()).name(name)
    assert unknown == Verdict("deny", reason=f"no rule exposes a port of {name}")


def test_a_pattern_shuts_a_sandboxs_ports_too() -> None:
    name = f"db.{SANDBOX_DOMAIN}"
    for hosts in ((), ("*",), ("*.internal",), (name,)):
        policy = of(Rule(action="deny", hosts=hosts, ports=(22,)), Policy.expose_sandbox("db", 22, 80))
        assert action(policy, name, "127.0.0.1", 22) == "deny"
        assert action(policy, name, "127.0.0.1", 80) == "allow"


def test_a_name_is_known_if_some_port_of_it_may_be_reached() -> None:
    judge = Judge(of(Rule(hosts=("a.example",), ports=(22,)), Rule(hosts=("*.b.example",), methods=("GET",))))
    assert judge.knows_name("a.example")
    assert judge.knows_name("A.Example.")
    assert judge.knows_name("x.b.example")
    assert not judge.knows_name("b.example")
    assert judge.name("c.example") == Verdict("deny", reason="no rule allows c.example")


def test_a_name_that_is_denied_first_is_not_known_although_a_later_rule_allows_it() -> None:
    denied = Rule(action="deny", hosts=("*.evil.example",))
    judge = Judge(of(denied, Rule(hosts=("*",))))
    assert judge.name("data.evil.example") == Verdict("deny", 0, reason="rule 1 denies data.evil.example")
    assert judge.knows_name("good.example")
    some = Judge(of(Rule(action="deny", hosts=("*",), ports=(22,)), Rule(hosts=("*",))))
    assert some.knows_name("a.example")
    every = Judge(of(Rule(action="deny", hosts=("*",), ports=("1-65535",)), Rule(hosts=("*",))))
    assert not every.knows_name("a.example")
    in_range = Judge(of(Rule(action="deny", addresses=("8.8.8.0/24",)), Rule(hosts=("*",))))
    assert in_range.knows_name("a.example")


def test_a_connection_must_show_its_name_unless_nobody_may_look_or_only_observes() -> None:
    judge = Judge(of(Rule(hosts=("*",)), passthrough=("*.pinned.example",)))
    assert judge.looks_into("a.example") and judge.looks_into("pinned.example")
    assert not judge.looks_into("a.pinned.example")
    assert not judge.looks_into(HOST_NAME)
    assert not Judge(of(observe=True)).looks_into("a.example")


def test_a_rule_that_has_only_addresses_lets_nobody_ask_for_names() -> None:
    only = Judge(of(Rule(addresses=("8.8.8.0/24", "10.0.0.0/8"))))
    assert only.connection(None, PUBLIC, 443).action == "allow"
    assert only.name("data.evil.example") == Verdict("deny", reason="no rule allows data.evil.example")
    assert Judge(of(Rule(hosts=("*.corp",), addresses=("10.0.0.0/8",)))).knows_name("wiki.corp")
    assert Judge(of(Rule())).knows_name("a.example")


def test_asking_for_a_name_at_which_a_rule_unplugs_unplugs() -> None:
    judge = Judge(of(Rule(action="unplug", name="trap", hosts=("trap.example",)), Rule(hosts=("*",))))
    assert judge.name("trap.example") == Verdict("unplug", 0, reason="rule 1 (trap) unplugs at trap.example")
    assert judge.knows_name("trap.example") and judge.knows_address("trap.example", PUBLIC)
    may_be_in_range = Judge(of(Rule(addresses=("8.8.8.0/24",)), Rule(action="unplug")))
    assert may_be_in_range.name("a.example").action == "deny"


def test_an_observing_policy_knows_every_name_but_the_hosts_own() -> None:
    judge = Judge(of(Rule(action="unplug", hosts=("trap.example",)), observe=True))
    assert judge.knows_name("a.example") and judge.name("a.example").observed
    assert judge.name("trap.example").rule == 0
    assert not judge.knows_name(HOST_NAME)
    assert Judge(of(Policy.expose_host(1), observe=True)).knows_name(HOST_NAME)


def test_an_address_is_told_just_if_some_port_of_it_may_be_reached() -> None:
    judge = Judge(of(Rule(action="deny", addresses=("8.8.8.0/24",)), Rule(hosts=("*",))))
    assert judge.knows_address("a.example", "8.8.9.9")
    assert not judge.knows_address("a.example", "8.8.8.8")
    assert not judge.knows_address("a.example", "10.0.0.1")
    opened = Judge(of(Rule(hosts=("wiki.corp",), addresses=("10.0.0.0/8",))))
    assert opened.knows_address("wiki.corp", "10.0.0.1")
    observing = Judge(of(observe=True))
    assert observing.knows_address("a.example", PUBLIC)
    assert not observing.knows_address("a.example", "10.0.0.1")


@RANDOM
@given(POLICIES, DESTINATIONS)
@example(of(Rule(hosts=(HOST_NAME,))), Destination(HOST_NAME, "127.0.0.1", 80))
def test_a_judge_agrees_with_one_that_asks_each_rule(policy: Policy, to: Destination) -> None:
    assume(to.name != HOST_NAME or plain(to.address).is_loopback)
    found, expected = Judge(policy).connection(*to), kept(policy, to)
    rules = [policy.rules[number] for number in expected]
    is_closed = closed(plain(to.address)) is not None
    if policy.mode == "observe" and is_closed and not any(rule.action == "allow" for rule in rules):
        assert found.action == "deny"
    elif rules and rules[0].inspects:
        assert found == Verdict("inspect", kept=tuple(expected))
    elif policy.mode == "observe":
        assert found.action == "allow"
        assert found.observed == (not rules or rules[0].action != "allow")
    else:
        assert found.action == (rules[0].action if rules else "deny")
    if found.action != "inspect":
        assert found.rule == (expected[0] if expected else None)


@RANDOM
@given(POLICIES, DESTINATIONS)
def test_no_policy_whatever_lets_a_guest_to_what_no_rule_may_open(policy: Policy, to: Destination) -> None:
    parsed = plain(to.address)
    if parsed.is_loopback and to.name != HOST_NAME:
        found = Judge(policy).connection(*to)
        assert found.action != "allow"
        assert all(policy.rules[number].action != "allow" for number in found.kept)


@RANDOM
@given(POLICIES, DESTINATIONS)
def test_what_can_be_reached_has_a_name_and_an_address_that_are_known(
    policy: Policy, to: Destination
) -> None:
    judge = Judge(policy)
    reached = judge.connection(*to)
    allowing = [policy.rules[number] for number in reached.kept or (reached.rule,) if number is not None]
    assume(reached.observed or not any(rule.addresses and not rule.hosts for rule in allowing))
    allows = any(rule.action == "allow" for rule in allowing)
    if to.name is not None and (reached.action == "allow" or (reached.action == "inspect" and allows)):
        assert judge.knows_name(to.name)
        assert to.name == HOST_NAME or judge.knows_address(to.name, to.address)


@settings(RANDOM, max_examples=100)
@given(POLICIES)
def test_a_name_without_any_allowed_port_is_not_known(policy: Policy) -> None:
    judge = Judge(policy)
    for name in NAMES:
        if policy.mode == "enforce" and not any(rule.action == "allow" for rule in policy.rules):
            assert judge.name(name).action != "allow"
        if judge.name(name).action == "unplug":
            everywhere = [judge.connection(name, to, port).action for to in ADDRESSES for port in SEEN_PORTS]
            assert not {"allow"} & set(everywhere)


def test_a_name_that_is_none_is_known_at_no_address() -> None:
    assert not Judge(of(Rule())).knows_address("no name at all", PUBLIC)
