"""E2B's ``network`` as a policy: what is refused, what the rules are, and that they mean what E2B says."""

from __future__ import annotations

import ipaddress
import json
import random
from typing import Any

import msgspec
import pytest

from atoll.policy import check_policy, closed, masked, matches_host, plain
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.attributes import Attributes
from atoll.server.e2b.egress import egress_of, mask_of
from atoll.server.e2b.network_views import kept_network, told_network
from atoll.server.e2b.wire import Network
from atoll.types import EgressPolicy, Inject, Policy, Rule
from tests.unit.policy.reference import Judge
from tests.unit.server.examples import sandbox

EVERYTHING = "0.0.0.0/0"
LAN = ipaddress.ip_network("10.1.0.0/16")


def network(**given: Any) -> Network:
    return msgspec.convert(given, Network)


def changing(headers: dict[str, str]) -> list[dict[str, Any]]:
    return [{"transform": {"headers": headers}}]


def policy(opened: tuple[Any, ...] = (), **given: Any) -> Policy:
    made = egress_of(network(**given), None, opened)
    assert isinstance(made, Policy)
    check_policy(made)
    return made


@pytest.mark.parametrize(
    ("given", "flag", "egress"),
    [
        (None, None, "internet"),
        (None, True, "internet"),
        (None, False, "none"),
        ({"denyOut": [EVERYTHING]}, None, "none"),
        ({"denyOut": ["0.0.0.0/1", "128.0.0.0/1"]}, None, "none"),
        ({"denyOut": [EVERYTHING]}, True, "none"),
        ({"allow_internet_access": False}, None, "none"),
        ({"allowOut": [EVERYTHING], "denyOut": ["10.0.0.0/8", EVERYTHING]}, None, "internet"),
        ({"allowOut": ["*"], "denyOut": [EVERYTHING]}, None, "internet"),
        ({"allowOut": [EVERYTHING]}, False, "internet"),
        ({"allowOut": [], "denyOut": [], "rules": {}}, None, "internet"),
        ({"allowOut": ["8.8.8.8"]}, None, "internet"),
        ({"denyOut": ["10.0.0.0/8", "192.168.1.1"]}, None, "internet"),
        ({"allowOut": ["8.8.0.0/16"], "denyOut": ["8.8.8.8"]}, None, "internet"),
        ({"allowOut": ["10.0.0.0/8"], "denyOut": [EVERYTHING]}, None, "none"),
        ({"rules": {"a.example.com": []}}, None, "internet"),
        ({"dnsServers": ["1.1.1.1"], "egressProxy": None}, None, "internet"),
        ({"rules": {"a.example.com": changing({"x-a": "b"})}, "denyOut": [EVERYTHING]}, None, "none"),
    ],
)
def test_all_or_nothing_is_understood_however_it_is_said(
    given: dict[str, Any] | None, flag: bool | None, egress: str
) -> None:
    assert egress_of(None if given is None else network(**given), flag) == egress


def test_allowed_places_are_rules_and_the_rest_is_denied() -> None:
    made = policy(allowOut=["8.8.8.8", "API.example.com.", "*.example.org"], denyOut=[EVERYTHING])
    assert made == Policy(
        rules=(
            Rule(name="allowOut", hosts=("api.example.com", "*.example.org")),
            Rule(name="allowOut", addresses=("8.8.8.8/32",)),
        )
    )


def test_denied_ranges_are_rules_before_the_rest() -> None:
    made = policy(allowOut=["8.8.8.8"], denyOut=["8.8.8.0/24", "8.8.8.8", "::ffff:9.9.9.9", "10.0.0.0/8"])
    assert made == Policy(
        rules=(
            Rule(name="allowOut", addresses=("8.8.8.8/32",)),
            Rule(name="denyOut", action="deny", addresses=("8.8.8.0/24", "9.9.9.9/32")),
            Rule(name="the rest"),
        )
    )


def test_private_ranges_stay_shut_unless_the_operator_opens_them() -> None:
    wide = policy(allowOut=["10.0.0.0/7", "fc00::/7"], denyOut=[EVERYTHING])
    assert wide.rules == (Rule(name="allowOut", addresses=("11.0.0.0/8",)),)
    opened = policy((LAN,), allowOut=["10.0.0.0/8"], denyOut=[EVERYTHING])
    assert opened.rules == (Rule(name="allowOut", addresses=("10.1.0.0/16",)),)
    both = policy((LAN,), allowOut=["10.1.2.0/24", "10.2.0.0/16"])
    assert both.rules == (Rule(name="allowOut", addresses=("10.1.2.0/24",)), Rule(name="the rest"))
    # everything is everything public
    assert egress_of(network(allowOut=[EVERYTHING]), None, (LAN,)) == "internet"


def test_headers_are_changed_only_where_requests_are_allowed() -> None:
    rules = {"api.example.com": changing({"X-Team": "a", "Authorization": "Bearer ${e2b.secrets.My_Key}"})}
    inject = (Inject(key="Authorization", format="Bearer {my_key}"),)
    change: dict[str, Any] = {
        "name": "rules of api.example.com",
        "hosts": ("api.example.com",),
        "set_headers": {"X-Team": "a"},
        "inject": inject,
    }
    assert policy(rules=rules).rules == (Rule(**change), Rule(name="the rest"))
    assert policy(rules=rules, allowOut=["other.org"], denyOut=[EVERYTHING]).rules == (
        Rule(name="allowOut", hosts=("other.org",)),
    )
    named = policy(rules=rules, allowOut=["*.example.com"], denyOut=[EVERYTHING])
    assert named.rules == (Rule(**change), Rule(name="allowOut", hosts=("*.example.com",)))
    somewhere = policy(rules=rules, allowOut=["8.8.8.8"], denyOut=[EVERYTHING])
    assert somewhere.rules == (
        Rule(**change, addresses=("8.8.8.8/32",)),
        Rule(name="allowOut", addresses=("8.8.8.8/32",)),
    )
    elsewhere = policy(rules=rules, denyOut=["8.8.8.8"])
    assert elsewhere.rules == (
        Rule(name="denyOut", action="deny", addresses=("8.8.8.8/32",)),
        Rule(**change),
        Rule(name="the rest"),
    )


def test_a_header_may_have_several_secrets_and_braces() -> None:
    value = "${e2b.secrets.Id}:${e2b.secrets.key} {}{a}"
    made = policy(rules={"a.example": changing({"X-Auth": value})})
    check_policy(made)
    (inject,) = made.rules[0].inject
    assert inject == Inject(key="X-Auth", format="{id}:{key} {{}}{{a}}")
    assert inject.secrets == ("id", "key")


def test_the_nearest_rule_of_a_host_decides_alone() -> None:
    rules = {
        "*.com": changing({"x-a": "1"}),
        "*.example.com": changing({"x-b": "2"}),
        "www.example.com": [],
        "example.com": [],
    }
    made = policy(rules=rules)
    assert [rule.hosts for rule in made.rules] == [
        ("www.example.com",),
        ("example.com",),
        ("*.example.com",),
        ("*.com",),
        (),
    ]


def test_a_proxy_is_in_the_policy_with_its_credentials() -> None:
    made = policy(egressProxy={"address": "proxy.example.com:1080", "username": "ann", "password": "p@s:s/"})
    assert made.proxy is not None
    assert made.proxy.url == "socks5://ann:p%40s%3As%2F@proxy.example.com:1080"
    assert made.rules == (Rule(name="the rest"),)
    alone = policy(egressProxy={"address": "[2606:4700::1]:1080", "tls": {"enabled": False}})
    assert alone.proxy is not None
    assert alone.proxy.url == "socks5://[2606:4700::1]:1080"


def test_no_proxy_is_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.server.e2b.egress.is_this_host", lambda address: address == "8.8.8.8")
    for own in ("8.8.8.8:1080", "[::ffff:8.8.8.8]:1080", "[64:ff9b::808:808]:1080"):
        with pytest.raises(Refusal, match="invalid egress proxy address"):
            policy(egressProxy={"address": own})


@pytest.mark.parametrize("seed", range(100))
def test_a_policy_behind_a_proxy_is_one_that_can_be_enforced_or_is_refused(seed: int) -> None:
    chance = random.Random(seed)
    names = some(chance, PATTERNS, 4)
    given: dict[str, Any] = {
        "allowOut": names + some(chance, RANGES, 3),
        "denyOut": some(chance, RANGES, 2) + ([EVERYTHING] if names or chance.random() < 0.5 else []),
        "rules": {host: changing({"x-rule": host}) for host in some(chance, PATTERNS, 4)},
        "egressProxy": {"address": "proxy.example.com:1080"},
    }
    try:
        made = egress_of(network(**given), None, (LAN,))
    except Refusal as refusal:
        assert (refusal.status, EVERYTHING in given["denyOut"]) == (501, False)
        return
    if made == "none":
        return
    assert isinstance(made, Policy)
    check_policy(made)
    judge = Judge(made)
    for name in (one for one in NAMES if "." in one):
        allowed = EVERYTHING not in given["denyOut"] or EVERYTHING in given["allowOut"]
        expected = allowed or any(matches_host(one, name) for one in names)
        assert (judge.connection(name, None, 443).action != "deny") == expected, (given, name)


def test_a_proxys_password_is_not_told_and_another_proxy_is_not_taken_for_the_one_that_was_given() -> None:
    proxy = {"address": "proxy.example.com:1080", "username": "ann", "password": "s3cr3t"}
    given: dict[str, Any] = {"egressProxy": proxy}
    kept = kept_network(network(**given))
    assert "s3cr3t" not in str(kept)
    made = masked(policy(**given))
    info = sandbox(1, network=made)
    told = told_network(info, Attributes(template="base", network=kept), ())
    assert told.egress_proxy is not None
    assert (told.egress_proxy.address, told.egress_proxy.username, told.egress_proxy.password) == (
        "proxy.example.com:1080",
        "ann",
        None,
    )
    other = sandbox(2, network=policy(egressProxy={"address": "other.example.com:1080"}))
    assert told_network(other, Attributes(template="base", network=kept), ()).egress_proxy is None


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"denyOut": ["example.com"]}, 400, "invalid denied CIDR example.com"),
    ({"denyOut": ["fe80::1%eth0"]}, 400, "invalid denied CIDR"),
    ({"allowOut": ["exa mple"]}, 400, "invalid allowed address exa mple"),
    ({"allowOut": ["8.8.8.8:80"]}, 400, "invalid allowed address 8.8.8.8:80"),
    ({"allowOut": ["host.atoll.internal"], "denyOut": [EVERYTHING]}, 400, "invalid allowed address"),
    ({"allowOut": ["HOST.atoll.internal."], "denyOut": [EVERYTHING]}, 400, "invalid allowed address"),
    (
        {"allowOut": ["example.com"], "denyOut": ["8.8.8.8"]},
        400,
        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block "
        "all other traffic.",
    ),
    ({"dnsServers": ["::1"]}, 400, "invalid DNS server"),
    ({"httpsPorts": [0]}, 400, "invalid port 0"),
    ({"httpsPorts": [49983]}, 400, "invalid port 49983"),
    *(
        ({"egressProxy": {"address": address}}, 400, "invalid egress proxy address")
        for address in (
            "proxy",
            "proxy:0",
            "proxy:65536",
            "proxy:١",
            ":1080",
            "127.0.0.1:1080",
            "10.0.0.1:1080",
            "[::1]:1080",
            "2606:4700::1:1080",
            "[proxy]:1080",
            "a@b:1080",
            "localhost:1080",
            "host.atoll.internal:1080",
        )
    ),
    ({"egressProxy": {"address": "p.example:1080", "tls": {"enabled": True}}}, 501, "TLS"),
    ({"egressProxy": {"address": "p.example:1080", "password": "x"}}, 400, "no username"),
    ({"rules": {f"a{n}.org": [] for n in range(11)}}, 400, "Network rules can have at most 10 domains."),
    ({"rules": {"": []}}, 400, "Rule domain must not be empty."),
    ({"rules": {"a" * 129: []}}, 400, "exceeds maximum length of 128"),
    ({"rules": {"*": []}}, 400, 'Rule domain "*" is not a valid domain name.'),
    ({"rules": {"1.2.3.4": []}}, 400, 'Rule domain "1.2.3.4" is not a valid domain name.'),
    ({"rules": {"host.atoll.internal": []}}, 400, "is not a valid domain name."),
    ({"rules": {"db.sandbox.atoll.internal": []}}, 400, "is not a valid domain name."),
    ({"rules": {"*.sandbox.atoll.internal": []}}, 400, "is not a valid domain name."),
    ({"rules": {"a.org": [], "A.org": []}}, 400, "twice"),
    ({"rules": {"a.org": [{}, {}]}}, 400, 'Domain "a.org" can have at most 1 transform rule.'),
    ({"rules": {"a.org": changing({f"x-{n}": "" for n in range(21)})}}, 400, "at most 20 headers per rule."),
    ({"rules": {"a.org": changing({"": "a"})}}, 400, "must not be empty"),
    ({"rules": {"a.org": changing({"x a": "a"})}}, 400, "valid HTTP token characters"),
    ({"rules": {"a.org": changing({"x" * 65: "a"})}}, 400, "exceeds maximum length of 64"),
    ({"rules": {"a.org": changing({"x": "a\r\nb: c"})}}, 400, "invalid characters"),
    ({"rules": {"a.org": changing({"x": "é" * 1025})}}, 400, "exceeds maximum length of 2048"),
    ({"rules": {"a.org": changing({"x": "a", "X": "b"})}}, 400, "twice"),
    ({"rules": {"a.org": changing({"x": "${e2b.secrets.}"})}}, 400, "malformed placeholder"),
    ({"rules": {"a.org": changing({"x": "${e2b.secrets.a b}"})}}, 400, "malformed placeholder"),
    ({"rules": {"a.org": changing({"x": "${e2b.other.a}"})}}, 400, "malformed placeholder"),
    ({"rules": {"a.org": changing({"x": "${e2b.secrets.a"})}}, 400, "malformed placeholder"),
    (
        {"rules": {"a.org": changing({"x": "${e2b.identity.tokens.t}"})}},
        400,
        "Sandbox IAM workload tokens are not available for your team.",
    ),
]


@pytest.mark.parametrize(("given", "status", "words"), WRONG)
def test_what_is_wrong_is_refused_in_e2bs_words(given: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        egress_of(network(**given), None)
    assert refused.value.status == status
    assert words in refused.value.message


def test_a_password_is_not_printed() -> None:
    made = network(egressProxy={"address": "p.example:1080", "username": "a", "password": "hunter2"})
    assert "hunter2" not in repr(made)


def test_a_masked_host_cannot_smuggle_another_header() -> None:
    assert mask_of(Network(mask_request_host="localhost:${PORT}")) == "localhost:${PORT}"
    assert mask_of(Network()) is None
    with pytest.raises(Refusal):
        mask_of(Network(mask_request_host="localhost\r\nX-Evil: 1"))


def told(attributes: Attributes, egress: EgressPolicy, opened: tuple[Any, ...] = ()) -> Any:
    info = msgspec.structs.replace(sandbox(1), network=egress)
    return json.loads(msgspec.json.encode(told_network(info, attributes, opened)))


def test_a_client_is_told_what_it_gave_without_the_password() -> None:
    given: dict[str, Any] = {
        "allowOut": ["api.example.com", "10.1.0.0/16"],
        "denyOut": [EVERYTHING, "9.9.9.9"],
        "rules": {"api.example.com": changing({"x-key": "${e2b.secrets.k}"})},
        "egressProxy": {"address": "p.example:1080", "username": "ann", "password": "hunter2"},
        "dnsServers": ["1.1.1.1"],
    }
    wanted = network(**given, allowPublicTraffic=False, maskRequestHost="x")
    kept = kept_network(wanted)
    assert kept is not None
    assert "hunter2" not in kept
    attributes = Attributes(template="base", network=kept, mask_host="y")
    del given["egressProxy"]["password"]
    assert told(attributes, egress_of(wanted, None, (LAN,)), (LAN,)) == {
        **given,
        "allowPublicTraffic": True,
        "maskRequestHost": "y",
    }


def test_a_flag_is_told_as_a_range() -> None:
    wanted = network(allow_internet_access=False, allowOut=["8.8.8.8"])
    attributes = Attributes(template="base", network=kept_network(wanted))
    assert told(attributes, egress_of(wanted, None))["denyOut"] == [EVERYTHING]


def test_after_a_change_by_the_operator_a_client_is_told_what_holds() -> None:
    attributes = Attributes(template="base", network=kept_network(network(denyOut=["9.9.9.9"])))
    assert told(attributes, "internet") == {"allowPublicTraffic": True}
    for egress in ("none", "packages", "web-read-only", Policy()):
        assert told(attributes, egress) == {"allowPublicTraffic": True, "denyOut": [EVERYTHING]}
    mine = Policy(
        rules=(
            Rule(hosts=("a.org",), set_headers={"x-key": "secret"}),
            Rule(hosts=("a.org", "*.b.org")),
            Rule(action="deny", addresses=("9.9.9.9/32",)),
            Rule(action="deny", hosts=("c.org",)),
        )
    )
    assert told(attributes, mine) == {
        "allowPublicTraffic": True,
        "allowOut": ["a.org", "*.b.org"],
        "denyOut": ["9.9.9.9/32", EVERYTHING],
    }
    assert told(attributes, msgspec.structs.replace(mine, rules=(*mine.rules, Rule())))["denyOut"] == [
        "9.9.9.9/32"
    ]


def test_too_much_of_a_network_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        kept_network(network(allowOut=["a" * 200] * 400))
    assert refused.value.status == 400


NAMES = ["com", "example.com", "a.example.com", "b.a.example.com", "other.org", "x.other.org"]
PATTERNS = [*NAMES[1:], "*.com", "*.example.com", "*.a.example.com", "*.other.org", "*.x.other.org"]
ADDRESSES = [
    "8.8.8.8",
    "8.8.4.4",
    "9.9.9.9",
    "10.1.2.3",
    "10.2.0.1",
    "192.168.0.1",
    "2606:4700::1",
    "fc00::1",
]
RANGES = ["8.8.8.8", "8.8.0.0/16", "8.0.0.0/5", "8.8.4.0/24", "9.9.9.9/32", "10.0.0.0/8", "10.1.2.0/24"]
RANGES += ["10.0.0.0/7", "2606::/16", "fc00::/7", "::/0", "128.0.0.0/1", "0.0.0.0/1"]


def some(chance: random.Random, of: list[str], most: int) -> list[str]:
    return chance.sample(of, chance.randrange(most + 1))


def in_any(address: str, ranges: list[str]) -> bool:
    parsed = ipaddress.ip_address(address)
    return any(parsed in ipaddress.ip_network(one) for one in ranges)


def e2b_allows(given: dict[str, Any], name: str | None, address: str, opened: bool) -> bool:
    """Allow beats deny, and the default is to allow. What is not public needs its range and the operator."""
    if closed(plain(address)) is not None:
        narrow = [one for one in given["allowOut"] if one in ("10.0.0.0/8", "10.1.2.0/24")]
        return opened and ipaddress.ip_address(address) in LAN and in_any(address, narrow)
    names = [one for one in given["allowOut"] if one in PATTERNS]
    ranges = [one for one in given["allowOut"] if one not in PATTERNS]
    if name is not None and any(matches_host(one, name) for one in names):
        return True
    if EVERYTHING in ranges or in_any(address, ranges):
        return True
    denied = given["denyOut"]
    denies_all = EVERYTHING in denied or {"0.0.0.0/1", "128.0.0.0/1"} <= set(denied)
    return not (denies_all or in_any(address, denied))


def e2b_changes(given: dict[str, Any], name: str | None) -> dict[str, str]:
    """The exact name's rule, or that of the longest pattern."""
    fitting = [one for one in given["rules"] if name is not None and matches_host(one, name)]
    if not fitting:
        return {}
    nearest = name if name in fitting else max(fitting, key=len)
    given_rules = given["rules"][nearest]
    headers: dict[str, str] = given_rules[0]["transform"]["headers"] if given_rules else {}
    return headers


def judged(judge: Judge, name: str | None, address: str, port: int) -> tuple[bool, bool, dict[str, str]]:
    """Whether HTTP passes, whether anything else passes, and the headers that are set."""
    verdict = judge.connection(name, address, port)
    if verdict.action != "inspect":
        passes = verdict.action == "allow"
        return passes, passes, {}
    kept = [judge.policy.rules[number] for number in verdict.kept]
    raw = next((rule.action == "allow" for rule in kept if not rule.inspects), False)
    return kept[0].action == "allow", raw, kept[0].set_headers


@pytest.mark.parametrize("seed", range(400))
def test_a_policy_means_what_e2b_says(seed: int) -> None:
    chance = random.Random(seed)
    names = some(chance, PATTERNS, 4)
    denied = some(chance, RANGES, 4) + ([EVERYTHING] if names or chance.random() < 0.3 else [])
    hosts = some(chance, PATTERNS, 6)
    ranges = some(chance, RANGES, 3) + ([EVERYTHING] if chance.random() < 0.1 else [])
    given: dict[str, Any] = {
        "allowOut": names + ranges,
        "denyOut": denied,
        "rules": {host: changing({"x-rule": host}) if chance.random() < 0.7 else [] for host in hosts},
    }
    opened = chance.random() < 0.5
    made = egress_of(network(**given), None, (LAN,) if opened else ())
    rules = made if isinstance(made, Policy) else Policy(rules=(Rule(),) if made == "internet" else ())
    check_policy(rules)
    judge = Judge(rules)
    for name in [None, *NAMES]:
        for address in ADDRESSES:
            expected = e2b_allows(given, name, address, opened)
            http, raw, headers = judged(judge, name, address, 443)
            assert (http, raw) == (expected, expected), (given, name, address, made)
            if expected:
                assert headers == e2b_changes(given, name), (given, name, address, made)
            assert judged(judge, name, address, 22) == (expected, expected, {}), (given, name, address)
