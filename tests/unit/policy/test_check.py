from __future__ import annotations

import math

import pytest

from atoll.errors import InvalidSpecError
from atoll.policy import check_policy, without_own
from atoll.types import AskTerms, Inject, Mcp, Policy, RateLimit, Rule, UpstreamProxy

NAME_HINT = "give a name, *.NAME for every name below it, or *"
PORT_HINT = 'give a number from 1 to 65535, or a range such as "8000-8100"'
HOST = ("a.example",)


def rate(**given: float) -> Rule:
    return Rule(hosts=HOST, limit=RateLimit(**given))  # type: ignore[arg-type]


def inject(**given: str) -> Rule:
    return Rule(hosts=HOST, inject=(Inject(**{"secret": "gh", **given}),))  # type: ignore[arg-type]


FAULTS: list[tuple[Rule, str, str]] = [
    (Rule(hosts=("a b",)), "'a b' is no host name", NAME_HINT + "; give addresses in `addresses`"),
    (Rule(hosts=("10.0.0.1",)), "'10.0.0.1' is no host name", NAME_HINT + "; give addresses in `addresses`"),
    (Rule(hosts=("a.*.example",)), "'a.*.example' is no host name", NAME_HINT),
    (Rule(hosts=("https://a.example",)), "'https://a.example' is no host name", NAME_HINT),
    (
        Rule(addresses=("10.0.0.1/8",)),
        "'10.0.0.1/8' is no range of addresses",
        "give one such as 10.1.0.0/16",
    ),
    (Rule(addresses=("a.example",)), "'a.example' is no range of addresses", "give one such as 10.1.0.0/16"),
    (Rule(addresses=("fe80::%1/64",)), "'fe80::%1/64' is no range of addresses", "give one such as"),
    (
        Rule(addresses=("127.0.0.0/8",)),
        "127.0.0.0/8 has addresses that no sandbox may reach",
        "leave `addresses` empty for every public address, or expose a port of the host",
    ),
    (
        Rule(addresses=("0.0.0.0/0",)),
        "0.0.0.0/0 has addresses that no sandbox may reach",
        "leave `addresses`",
    ),
    (Rule(addresses=("::/0",)), "::/0 has addresses that no sandbox may reach", "leave `addresses`"),
    (Rule(addresses=("198.18.0.1",)), "198.18.0.1 has addresses that no sandbox may reach", "leave"),
    (
        Rule(addresses=("160.0.0.0/4",)),
        "160.0.0.0/4 has public addresses and others",
        "name the ranges that are",
    ),
    (
        Rule(addresses=("::ffff:10.0.0.0/104",)),
        "::ffff:10.0.0.0/104 stands for IPv4 addresses",
        "give the range of",
    ),
    (
        Rule(action="deny", addresses=("64:ff9b::/96",)),
        "64:ff9b::/96 stands for IPv4 addresses",
        "give the range of IPv4",
    ),
    (Rule(ports=(0,)), "0 is not a port or a range of ports", PORT_HINT),
    (Rule(ports=("90-80",)), "'90-80' is not a port or a range of ports", PORT_HINT),
    (
        Rule(action="deny", set_headers={"x": "1"}),
        "it changes requests, but its action is deny",
        "only requests that pass can be changed",
    ),
    (
        Rule(action="unplug", limit=RateLimit()),
        "it changes requests, but its action is unplug",
        "only requests that pass",
    ),
    (
        Rule(action="deny", ask=AskTerms()),
        "it says how to ask, but its action is deny",
        'give action = "ask"',
    ),
    (Rule(action="ask", ask=AskTerms(deadline_s=0)), "its deadline_s is 0", "give seconds from 1 to 3600"),
    (
        Rule(action="ask", ask=AskTerms(deadline_s=math.nan)),
        "its deadline_s is nan",
        "give seconds from 1 to 3600",
    ),
    (Rule(action="ask", ask=AskTerms(approvals=3)), "its approvals are 3", "give 1 or 2"),
    (Rule(set_headers={"a b": "1"}), "'a b' is no name of a header", "give one such as x-team"),
    (Rule(remove_headers=("",)), "'' is no name of a header", "give one such as x-team"),
    (Rule(headers={"a:": ("x",)}), "'a:' is no name of a header", "give one such as x-team"),
    (Rule(set_headers={"Host": "b"}), "the header Host cannot be changed", "atoll sets it itself"),
    (
        Rule(remove_headers=("content-length",)),
        "the header content-length cannot be changed",
        "atoll sets it",
    ),
    (
        Rule(set_headers={"x": "a\r\nb: c"}),
        "the value of the header x has a control character",
        "give one line",
    ),
    (
        Rule(set_headers={"x": "\x01"}),
        "the value of the header x has a control character",
        "give one line of",
    ),
    (inject(secret="a b"), "'a b' is no name of a secret", "use letters, digits, - and _"),
    (
        Rule(inject=(Inject(secret="gh"),)),
        "it sends the secret gh to any host",
        "name the hosts that may get it",
    ),
    (
        Rule(hosts=("*",), inject=(Inject(secret="gh"),)),
        "it sends the secret gh to any host",
        "name the hosts",
    ),
    (
        inject(format="Bearer"),
        "the format 'Bearer' has no place for the secret gh",
        "write {} for `secret`, ",
    ),
    (inject(format="{other}"), "the format '{other}' has no place for the secret gh", "write {} for `secr"),
    (inject(secret="", format="{{}}"), "the format '{{}}' has no place for the secret", "write {} for `sec"),
    (inject(secret=""), "the format '{}' has {}, and no secret is given", "name the secret in `secret`, or"),
    (inject(format="{a b}{}"), "the format '{a b}{}' has {a b}, which is no name of a secret", "write {} "),
    (inject(format="{{}"), "the format '{{}' has a brace that begins or ends no placeholder", "write {{ for"),
    (inject(format="{a{}"), "the format '{a{}' has a brace that begins or ends no placeholder", "write {{ f"),
    (inject(format="{}}"), "the format '{}}' has a brace that begins or ends no placeholder", "write {{ for"),
    (
        Rule(inject=(Inject(format="{id}:{key}"),)),
        "it sends the secret id, key to any host",
        "name the hosts that may get it",
    ),
    (inject(key=""), "the secret gh has no key", "say which header, parameter or field it goes into"),
    (inject(key="a b"), "the secret gh cannot go into the header 'a b'", "use another header"),
    (
        inject(key="Transfer-Encoding"),
        "the secret gh cannot go into the header 'Transfer-Encoding'",
        "use another",
    ),
    (inject(format="{}\r\nx: y"), "the secret gh is sent with a control character", "give one line of text"),
    (inject(into="basic", key="a:b"), "the user name 'a:b' has a colon", "it ends where the password begins"),
    (rate(per_s=0), "per_s is 0", "give seconds above 0"),
    (rate(per_s=float("nan")), "per_s is nan", "give seconds above 0"),
    (rate(per_s=float("inf")), "per_s is inf", "give seconds above 0"),
    (rate(requests=0), "requests is 0", "give 1 to 1,000,000,000,000,000, or use a deny rule"),
    (rate(bytes_s=-1), "bytes_s is -1", "give 1 to 1,000,000,000,000,000, or use a deny rule"),
    (rate(total_bytes=1 << 64), "total_bytes is 18446744073709551616", "give 1 to 1,000,000,000,000,000"),
    (Rule(paths=("simple/**",)), "the path 'simple/**' can never match", "paths begin with /"),
    (Rule(methods=("get",)), "'get' is no HTTP method", "methods are in upper case"),
    (Rule(methods=("",)), "'' is no HTTP method", "methods are in upper case"),
    (Rule(max_body_bytes=-1), "max_body_bytes is -1", "give 0 to 1,000,000,000,000,000"),
    (Rule(hosts=("a.example",) * 1001), "it has more than 1000 patterns", "make several rules of it"),
    (Rule(json={f"k{at}": ("a",) for at in range(600)}), "it has more than 1000 patterns", "make several"),
    (Rule(mcp=Mcp(tools=("a",) * 1001)), "it has more than 1000 patterns", "make several rules of it"),
    (Rule(paths=("/" + "a" * 2048,)), f"'/{'a' * 39}'… is too long", "the most are 2048 characters"),
    (Rule(name="n" * 2049), f"'{'n' * 40}'… is too long", "the most are 2048 characters"),
    (inject(format="{}" + "f" * 2048), "'{}" + "f" * 38 + "'… is too long", "the most are 2048 characters"),
]


@pytest.mark.parametrize(("rule", "message", "hint"), FAULTS, ids=[message[:40] for _, message, _ in FAULTS])
def test_a_fault_of_a_rule_is_told_with_its_number_and_what_helps(
    rule: Rule, message: str, hint: str
) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        check_policy(Policy(rules=(Rule(hosts=("before.example",), ports=(1,)), rule)))
    name = f" ({rule.name})" if rule.name else ""
    assert raised.value.message == f"rule 2{name}: {message}"
    assert (raised.value.hint or "").startswith(hint)


def test_a_fault_names_the_rule_by_its_name_too() -> None:
    with pytest.raises(InvalidSpecError, match=r"^rule 1 \(read packages\): 0 is not a port"):
        check_policy(Policy(rules=(Rule(name="read packages", ports=(0,)),)))


def test_a_rule_that_can_never_match_is_told_with_the_one_before_it() -> None:
    with pytest.raises(InvalidSpecError) as raised:
        check_policy(Policy(rules=(Rule(name="all", hosts=("*",)), Rule(action="deny", hosts=HOST))))
    assert raised.value.message == "rule 2 can never match: rule 1 (all) decides before it"
    assert raised.value.hint == "put the narrower rule first, or remove it"


@pytest.mark.parametrize("action", ["allow", "deny"])
def test_a_rule_about_requests_to_hosts_that_are_passed_through_can_never_match(action: str) -> None:
    rule = Rule(action=action, hosts=("x.pinned.example", "*.y.pinned.example"), methods=("POST",))  # type: ignore[arg-type]
    with pytest.raises(
        InvalidSpecError, match=r"rule 1 can never match: it is about requests, and passthrough"
    ):
        check_policy(Policy(rules=(rule,), passthrough=("*.pinned.example",)))
    check_policy(Policy(rules=(rule,), passthrough=("x.pinned.example",)))


def test_hosts_that_are_passed_through_are_patterns_of_names() -> None:
    with pytest.raises(InvalidSpecError, match=r"passthrough has '10\.0\.0\.1', which is no host name"):
        check_policy(Policy(passthrough=("10.0.0.1",)))


@pytest.mark.parametrize(
    "url",
    ["proxy:3128", "https://proxy:3128", "http://proxy", "http://proxy:0", "http://proxy:65536", "http://:1"]
    + ["http://user:pass word@proxy:1", "http://proxy:3128/path", "socks4://proxy:1", ""],
)
def test_an_invalid_proxy_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        check_policy(Policy(proxy=UpstreamProxy(url=url)))
    assert raised.value.message.startswith("the proxy's address is invalid: ")
    assert "word" not in raised.value.message
    assert raised.value.hint == "give http://HOST:PORT or socks5://USER:PASSWORD@HOST:PORT"


@pytest.mark.parametrize(
    "url",
    [
        "http://proxy:3128",
        "http://user:p:w@proxy.example:3128/",
        "socks5://[2001:db8::1]:1080",
        "http://8.8.8.8:1",
    ],
)
def test_a_proxy_is_http_or_socks5_with_a_port(url: str) -> None:
    check_policy(Policy(proxy=UpstreamProxy(url=url, hosts=("*.example",))))


def test_the_names_behind_a_proxy_are_patterns_of_names() -> None:
    with pytest.raises(InvalidSpecError, match=r"the proxy has '1\.2\.3\.4', which is no host name"):
        check_policy(Policy(proxy=UpstreamProxy(url="http://proxy:1", hosts=("1.2.3.4",))))


def test_a_policy_has_a_bounded_number_of_rules_and_patterns() -> None:
    rules = tuple(Rule(hosts=(f"h{at}.example",)) for at in range(1001))
    check_policy(Policy(rules=rules[:1000]))
    with pytest.raises(
        InvalidSpecError, match=r"the policy has 1001 rules \(the most are 1000: use patterns\)"
    ):
        check_policy(Policy(rules=rules))
    many = tuple(Rule(hosts=tuple(f"h{at}.{of}.a.example" for of in range(1000))) for at in range(21))
    with pytest.raises(InvalidSpecError, match=r"the policy has 21000 patterns \(the most are 20000\)"):
        check_policy(Policy(rules=many))


def test_a_policy_with_everything_in_it_passes() -> None:
    check_policy(
        Policy(
            rules=(
                Rule(action="deny", name="no mail", ports=(25, "465-587")),
                Rule(action="unplug", addresses=("169.254.169.254", "fd00:ec2::/32")),
                Rule(
                    hosts=("api.example", "*.api.example"),
                    ports=(443,),
                    protocol="http",
                    methods=("GET", "POST"),
                    paths=("/v1/**", "**"),
                    query={"service": ("git-*",)},
                    headers={"content-type": ("application/json*",)},
                    max_body_bytes=0,
                    json={"model": ("gpt-*",)},
                    mcp=Mcp(methods=("tools/call",), tools=("search_*",), arguments={"repo": ("acme/*",)}),
                    set_headers={"x-team": "a\tb"},
                    remove_headers=("cookie",),
                    inject=(
                        Inject(secret="gh", format="Bearer {}"),
                        Inject(secret="q", into="query", key="k"),
                        Inject(into="json", key="auth", format="{id}:{key}:{{{id}}}"),
                        Inject(secret="gh", key="x-both", format="{gh} {}"),
                    ),
                    limit=RateLimit(requests=1, bytes_s=1, total_bytes=1),
                ),
                Rule(hosts=("*",)),
                Policy.expose_host(8080),
            ),
            passthrough=("pinned.example",),
        )
    )


def test_exposing_no_port_of_a_sandbox_or_no_sandbox_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match=r"no port of the sandbox db is given \(name each port: "):
        Policy.expose_sandbox("db")
    with pytest.raises(InvalidSpecError, match="is no host name"):
        check_policy(Policy(rules=(Policy.expose_sandbox("-db", 80),)))


def test_a_rule_of_sandboxes_is_not_dead_behind_one_of_all_names() -> None:
    every, one = Rule(hosts=("*.sandbox.atoll.internal",)), Policy.expose_sandbox("db", 80)
    for late in (every, one):
        check_policy(Policy(rules=(Rule(hosts=("*",)), Rule(), Rule(hosts=("*.internal",)), late)[::3]))
    with pytest.raises(InvalidSpecError, match=r"rule 2 can never match: rule 1 decides before it"):
        check_policy(Policy(rules=(every, one)))


def test_exposing_no_port_of_the_host_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match=r"no port of the host is given \(name each port: "):
        Policy.expose_host()


def test_a_policy_that_another_team_inherits_sends_none_of_its_secrets() -> None:
    plain, secret = Rule(hosts=("a.example",)), Rule(hosts=("b.example",), inject=(Inject(secret="gh"),))
    stopping = Rule(action="unplug", hosts=("trap.example",))
    assert without_own(Policy(rules=(stopping, secret, plain))) == Policy(rules=(stopping, plain))
    assert without_own("internet") == "internet"


@pytest.mark.parametrize(
    ("given", "secrets"),
    [
        (Inject(secret="gh"), ("gh",)),
        (Inject(format="{id}:{key}"), ("id", "key")),
        (Inject(secret="gh", format="{gh}{{no}}{}{id}}}{{"), ("gh", "id")),
        (Inject(format="{{{id}}}"), ("id",)),
        (Inject(format="{{}}"), ()),
    ],
)
def test_the_secrets_of_a_format_are_known_by_name(given: Inject, secrets: tuple[str, ...]) -> None:
    assert given.secrets == secrets
