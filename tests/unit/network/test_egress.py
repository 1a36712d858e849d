from __future__ import annotations

import ipaddress
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.closed_ranges import BORDERS
from tests.unit.network.deciding import decide

from atoll.host import is_this_host
from atoll.network.handshake import ProxyError
from atoll.network.resolver import Resolver
from atoll.network.upstream import connect_through
from atoll.policy import CLOSED as REFUSED
from atoll.types import Policy, Rule, UpstreamProxy


def test_every_refused_range_has_its_borders_tested() -> None:
    assert set(BORDERS) == set(REFUSED)


@pytest.mark.parametrize("text", sorted(REFUSED))
def test_a_refused_range_is_refused_up_to_its_borders_and_no_further(text: str) -> None:
    network = ipaddress.ip_network(text)
    before, after = BORDERS[text]
    assert decide("internet", str(network[0]), 443)
    assert decide("internet", str(network[-1]), 443)
    for neighbour in (before, after):
        if neighbour:
            assert decide("internet", neighbour, 443) is None
    if before:
        assert int(ipaddress.ip_address(before)) == int(network[0]) - 1
    if after:
        assert int(ipaddress.ip_address(after)) == int(network[-1]) + 1


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.254.0.1", "169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "::1"],
)
def test_what_must_never_be_reached_is_refused(address: str) -> None:
    assert decide("internet", address, 80)


@pytest.mark.parametrize("address", ["203.0.113.10", "198.51.100.10", "192.0.2.10", "2001:db8::1"])
def test_documentation_ranges_pass_because_gateways_resolve_public_names_into_them(address: str) -> None:
    assert decide("internet", address, 443) is None


@pytest.mark.parametrize("carrier", ["::ffff:", "64:ff9b::"])
def test_an_ipv4_address_inside_an_ipv6_one_is_judged_as_itself(carrier: str) -> None:
    assert decide("internet", f"{carrier}10.0.0.1", 443)
    assert decide("internet", f"{carrier}8.8.8.8", 443) is None


@settings(deadline=None, derandomize=True, database=None)
@given(st.ip_addresses(), st.integers(1, 65535))
def test_without_a_network_everything_is_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    assert decide("none", str(address), port)


def test_port_0_is_refused() -> None:
    assert decide("internet", "8.8.8.8", 0)


def test_the_hosts_own_addresses_are_refused_where_the_host_is_known() -> None:
    assert decide("internet", "127.0.0.1", 80, is_own=is_this_host)
    assert decide("internet", "8.8.8.8", 80, is_own=lambda address: address == "8.8.8.8")
    assert decide("none", "8.8.8.8", 80, is_own=is_this_host)


@pytest.mark.parametrize("address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808"])
@pytest.mark.parametrize(
    "rules",
    [
        (Rule(addresses=("8.8.8.8/32",)),),
        (Rule(addresses=("8.0.0.0/5", "::/0")),),
        (Rule(methods=("GET",), addresses=("8.8.8.8/32",)),),
        (Rule(),),
    ],
)
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_no_rule_opens_the_hosts_own_addresses(
    address: str, rules: tuple[Rule, ...], mode: Literal["enforce", "observe"]
) -> None:
    policy = Policy(rules=rules, mode=mode)
    why = decide(policy, address, 80, is_own=lambda plain: plain == "8.8.8.8")
    assert why is not None
    assert "this host" in why


@pytest.mark.anyio
async def test_who_names_a_proxy_is_not_told_to_which_private_address_it_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def leads_inside(*_: object) -> list[str]:
        return ["10.11.12.13"]

    resolver = Resolver(list)
    monkeypatch.setattr(resolver, "addresses", leads_inside)
    proxy = UpstreamProxy(url="http://proxy.corp.example:3128")
    with pytest.raises(
        ProxyError, match="it is at an address that is private, and its `addresses`"
    ) as refused:
        await connect_through(proxy, "example.com", 443, resolver=resolver, is_own=is_this_host)
    assert "10.11.12.13" not in str(refused.value)


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "127.8.8.8"])
async def test_a_range_opens_no_proxy_on_this_host(host: str) -> None:
    proxy = UpstreamProxy(url=f"http://{host}:1", addresses=("0.0.0.0/0", "127.0.0.0/8"))
    with pytest.raises(ProxyError, match="which is this host, and its `addresses` do not open it"):
        await connect_through(proxy, "example.com", 443, resolver=Resolver(list), is_own=is_this_host)
