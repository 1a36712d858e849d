"""Upstream proxies in policies: their addresses, passwords, and what rules mean for names that they resolve."""

from __future__ import annotations

import re

import pytest

from atoll.errors import InvalidSpecError
from atoll.policy import (
    SEALED,
    ProxyAddress,
    check_policy,
    is_sealed,
    login_of,
    masked,
    policy_from_toml,
    proxy_address,
    proxy_document,
    to_toml,
    with_password,
)
from atoll.policy.proxies import within
from atoll.types import HOST_NAME, Policy, Rule, UpstreamProxy
from tests.unit.policy.reference import Judge

ALL = UpstreamProxy(url="socks5://ann:s3cr3t@proxy.example:1080")
SOME = UpstreamProxy(url="http://proxy.example:3128", hosts=("a.example", "*.b.example"))
ANYWHERE = Rule()


def action(policy: Policy, name: str | None, address: str | None = None, port: int = 443) -> str:
    return Judge(policy).connection(name, address, port).action


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://Proxy.Example:3128", ProxyAddress("http", "proxy.example", 3128)),
        ("http://ann@proxy:3128/", ProxyAddress("http", "proxy", 3128, "ann")),
        ("socks5://a%40n:p%3A%40%2f%C3%BC@8.8.8.8:1", ProxyAddress("socks5", "8.8.8.8", 1, "a@n", "p:@/ü")),
        ("socks5://ann:@[2001:DB8::1]:65535", ProxyAddress("socks5", "2001:db8::1", 65535, "ann")),
        ("http://[::ffff:8.8.8.8]:1", ProxyAddress("http", "8.8.8.8", 1)),
    ],
)
def test_an_address_says_where_the_proxy_is_and_as_whom_to_use_it(url: str, expected: ProxyAddress) -> None:
    found = proxy_address(UpstreamProxy(url=url))
    assert found == expected
    assert "p:@/" not in repr(found)


@pytest.mark.parametrize(
    "url",
    [
        "http://1.2.3:1",
        "http://a..b:1",
        "http://[fe80::1%25eth0]:1",
        "http://[1:2]:1",
        "http://a%3Ab:secret@proxy:1",
        "socks5://ann:%ff@proxy:1",
        "socks5://ann:%zz@proxy:1",
        "socks5://ann:%0d@proxy:1",
        f"socks5://{'u' * 256}:secret@proxy:1",
        f"socks5://ann:{'%C3%BC' * 128}@proxy:1",
        "socks5://:secret@proxy:1",
        f"socks5://ann:{SEALED}AAAA@proxy:1",
    ],
)
def test_what_no_proxy_can_be_given_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^the proxy's address is invalid: ") as raised:
        check_policy(Policy(proxy=UpstreamProxy(url=url)))
    assert not re.search("secret|ff|zz|0d|AAAA|C3", str(raised.value))


@pytest.mark.parametrize(
    "place", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "[fd00::1]", "0.0.0.0"]
)
def test_a_proxy_at_an_address_that_is_not_public_must_be_opened(place: str) -> None:
    proxy = UpstreamProxy(url=f"http://{place}:3128")
    with pytest.raises(InvalidSpecError, match=r"the proxy is at .*, which is .*addresses = "):
        check_policy(Policy(proxy=proxy))
    check_policy(Policy(proxy=UpstreamProxy(url=proxy.url, addresses=(place.strip("[]"),))))


@pytest.mark.parametrize("place", [HOST_NAME, "localhost", "a.localhost"])
def test_a_proxy_is_on_this_host_by_its_address_only(place: str) -> None:
    proxy = UpstreamProxy(url=f"http://{place}:3128", addresses=("127.0.0.0/8",))
    with pytest.raises(InvalidSpecError, match=r"which has no address here .*127\.0\.0\.1"):
        check_policy(Policy(proxy=proxy))


def test_ranges_of_a_proxy_are_ranges() -> None:
    with pytest.raises(InvalidSpecError, match="the proxy has 'a', which is no range of addresses"):
        check_policy(Policy(proxy=UpstreamProxy(url="http://proxy:1", addresses=("a",))))
    assert within("::ffff:10.0.0.1", ("192.168.0.0/16", "10.0.0.0/8"))
    assert not within("10.0.0.1", ("fc00::/7", "10.1.0.0/16"))


@pytest.mark.parametrize("addresses", ["0.0.0.0/0", "0.0.0.0/1", "8.0.0.0/8", "::/0"])
def test_the_addresses_of_a_proxy_are_not_everything(addresses: str) -> None:
    with pytest.raises(InvalidSpecError, match="which has public addresses"):
        check_policy(Policy(proxy=UpstreamProxy(url="http://proxy.example:1", addresses=(addresses,))))


def test_a_password_is_shown_nowhere() -> None:
    for network in (Policy(proxy=ALL), (ALL,), {"a": ALL}):
        assert "s3cr3t" not in repr(network)
        assert "ann:***@proxy.example" in repr(network)
    assert "s3cr3t" not in repr(ALL.__rich_repr__())
    shown = masked(Policy(proxy=ALL))
    assert isinstance(shown, Policy)
    assert shown.proxy == UpstreamProxy(url="socks5://ann:***@proxy.example:1080")
    assert policy_from_toml(to_toml(shown)) == shown
    assert masked("internet") == "internet"
    for unchanged in (Policy(), Policy(proxy=SOME)):
        assert masked(unchanged) == unchanged


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a:s3cr3t", "http://a:s3cr3t"),  # there is no login in it
        ("a:s3cr3t@b", "a:***@b"),
        ("http://a:s3/cr3t@b", "http://a:***@b"),
        ("http://a:s3//cr@3t@b:1", "http://a:***@b:1"),
        ("http://a@b:1", "http://a@b:1"),
    ],
)
def test_a_url_that_is_none_is_masked_all_the_same(url: str, shown: str) -> None:
    assert UpstreamProxy(url=url).masked().url == shown


def test_a_password_is_replaced_as_it_is_written() -> None:
    assert login_of(ALL) == ("socks5://ann@proxy.example:1080", "s3cr3t")
    assert login_of(SOME) == ("http://proxy.example:3128", None)
    sealed = with_password(ALL, f"{SEALED}AA-_")
    assert sealed.url == f"socks5://ann:{SEALED}AA-_@proxy.example:1080"
    assert is_sealed(sealed)
    assert not is_sealed(ALL)
    assert not is_sealed(SOME)
    assert with_password(SOME, "x") == SOME


def test_all_names_and_addresses_are_behind_a_proxy_or_just_its_names() -> None:
    every, some = Judge(Policy(proxy=ALL)), Judge(Policy(proxy=SOME))
    assert all(every.proxied(name) for name in ("x.example", "localhost", None))
    assert not every.proxied(HOST_NAME)
    assert {
        name for name in ("a.example", "x.a.example", "b.example", "x.b.example") if some.proxied(name)
    } == {
        "a.example",
        "x.b.example",
    }
    assert not some.proxied(None)
    assert not Judge(Policy()).proxied("a.example")


def test_a_name_that_a_proxy_resolves_is_judged_by_name_and_port() -> None:
    policy = Policy(rules=(Rule(hosts=("*.example",), ports=(443,)),), proxy=ALL)
    assert action(policy, "a.example") == "allow"
    assert action(policy, "a.example", port=80) == "deny"
    assert action(policy, "example") == "deny"
    assert action(policy, None, "8.8.8.8") == "deny"
    inspected = Policy(rules=(Rule(hosts=("a.example",), methods=("GET",)),), proxy=ALL)
    assert Judge(inspected).connection("a.example", None, 443).kept == (0,)
    passed = Policy(
        rules=(Rule(methods=("GET",)), Rule(hosts=("a.example",))), proxy=ALL, passthrough=("a.example",)
    )
    assert action(passed, "a.example") == "allow"


@pytest.mark.parametrize(
    "name", ["metadata", "metadata.google.internal", "nas.local", "x.home.arpa", "db.corp", "lan"]
)
def test_a_name_of_local_networks_is_behind_a_proxy_only_if_a_rule_names_it(name: str) -> None:
    parent = f"*.{name.partition('.')[2]}" if "." in name else name
    for rule in (ANYWHERE, Rule(hosts=("*",))):
        policy = Policy(rules=(rule,), proxy=ALL)
        found = Judge(policy).connection(name, None, 80)
        assert found.action == "deny"
        assert found.reason.startswith(f"{name} is a name")
        assert Judge(policy).name(name).action == "deny"
        seen = Judge(Policy(rules=(rule,), proxy=ALL, mode="observe"))
        assert seen.connection(name, None, 80).action == seen.name(name).action == "deny"
    for rule in (Rule(hosts=(name,)), Rule(hosts=(parent,)), Rule(hosts=("*", name))):
        policy = Policy(rules=(rule,), proxy=ALL)
        assert action(policy, name) == "allow"
        assert Judge(policy).name(name).action == "allow"


@pytest.mark.parametrize("name", ["localhost", "a.localhost", "localhost.localdomain"])
def test_the_proxys_own_computer_is_reached_by_no_rule(name: str) -> None:
    policy = Policy(rules=(Rule(hosts=(name,)), Rule(hosts=("*",))), proxy=ALL, mode="observe")
    assert action(policy, name) == "deny"


def test_private_addresses_stay_shut_behind_a_proxy_unless_a_rule_names_their_range() -> None:
    for address in ("10.0.0.1", "169.254.169.254", "127.0.0.1"):
        assert action(Policy(rules=(ANYWHERE,), proxy=ALL), None, address) == "deny"
    opened = Policy(rules=(Rule(addresses=("10.0.0.0/8",)),), proxy=ALL)
    assert action(opened, None, "10.0.0.1") == "allow"
    assert action(opened, "a.example") == "deny"
    assert Judge(opened).name("a.example").action == "deny"


def test_a_range_neither_opens_nor_forgets_a_name_whose_address_is_not_known() -> None:
    """Whoever checks a policy refuses these rules; a judge that meets them errs to the safe side."""
    opens = Rule(hosts=("a.example",), addresses=("10.0.0.0/8",))
    assert action(Policy(rules=(opens,), proxy=ALL), "a.example") == "deny"
    for refusing in ("deny", "unplug"):
        shuts = Rule(action=refusing, addresses=("203.0.113.0/24",))
        assert action(Policy(rules=(shuts, ANYWHERE), proxy=ALL), "a.example") == refusing


@pytest.mark.parametrize(
    ("rule", "proxy", "message"),
    [
        (Rule(hosts=("a.example",), addresses=("10.0.0.0/8",)), ALL, "can never match"),
        (Rule(hosts=("x.b.example", "*.c.b.example"), addresses=("10.0.0.0/8",)), SOME, "can never match"),
        (Rule(action="deny", addresses=("203.0.113.0/24",)), ALL, "refuses addresses"),
        (Rule(action="deny", hosts=("*.example",), addresses=("203.0.113.0/24",)), SOME, "refuses addresses"),
        (Rule(action="unplug", hosts=("x.b.example",), addresses=("10.0.0.0/8",)), SOME, "refuses addresses"),
    ],
)
def test_rules_about_addresses_that_nobody_here_learns_are_refused(
    rule: Rule, proxy: UpstreamProxy, message: str
) -> None:
    with pytest.raises(InvalidSpecError, match=rf"^rule 1 {message}.*the proxy"):
        check_policy(Policy(rules=(rule,), proxy=proxy))


@pytest.mark.parametrize(
    "rule",
    [
        Rule(addresses=("10.0.0.0/8",)),
        Rule(hosts=("b.example",), addresses=("10.0.0.0/8",)),
        Rule(hosts=("a.example", "c.example"), addresses=("10.0.0.0/8",)),
        Rule(action="deny", hosts=("b.example", "x.a.example"), addresses=("203.0.113.0/24",)),
    ],
)
def test_rules_about_addresses_that_are_known_pass(rule: Rule) -> None:
    check_policy(Policy(rules=(rule,), proxy=SOME))


def test_who_connects_through_a_proxy_reads_its_name_in_ascii_and_its_ranges_in_one_form() -> None:
    proxy = UpstreamProxy(
        url="socks5://me:p%40ss@bücher.example:1080", hosts=("*.bücher.example",), addresses=("10.0.0.0/8",)
    )
    assert proxy_document(proxy) == {
        "url": "socks5://me:p%40ss@xn--bcher-kva.example:1080",
        "hosts": ["*.xn--bcher-kva.example"],
        "addresses": ["10.0.0.0/8"],
    }
    assert (
        proxy_document(UpstreamProxy(url="http://[2001:db8::1]:3128"))["url"] == "http://[2001:db8::1]:3128"
    )
