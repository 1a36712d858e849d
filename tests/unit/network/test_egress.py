from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.network.deciding import decide

from atoll.network.egress import is_this_host
from atoll.policy import CLOSED as REFUSED

# The last address before and the first after each refused range; None where that is refused by another range.
BORDERS = {
    "0.0.0.0/8": (None, "1.0.0.0"),
    "10.0.0.0/8": ("9.255.255.255", "11.0.0.0"),
    "100.64.0.0/10": ("100.63.255.255", "100.128.0.0"),
    "127.0.0.0/8": ("126.255.255.255", "128.0.0.0"),
    "168.63.129.16/32": ("168.63.129.15", "168.63.129.17"),
    "169.254.0.0/16": ("169.253.255.255", "169.255.0.0"),
    "172.16.0.0/12": ("172.15.255.255", "172.32.0.0"),
    "192.0.0.0/24": ("191.255.255.255", "192.0.1.0"),
    "192.168.0.0/16": ("192.167.255.255", "192.169.0.0"),
    "198.18.0.0/15": ("198.17.255.255", "198.20.0.0"),
    "224.0.0.0/4": ("223.255.255.255", None),
    "240.0.0.0/4": (None, None),
    "::/96": (None, "::1:0:0"),
    "::ffff:0:0:0/96": ("::fffe:ffff:ffff:ffff", "::ffff:1:0:0"),
    "64:ff9b:1::/48": ("64:ff9b:0:ffff:ffff:ffff:ffff:ffff", "64:ff9b:2::"),
    "100::/64": ("ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "100:0:0:1::"),
    "2001::/23": ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"),
    "2002::/16": ("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"),
    "fc00::/7": ("fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe00::"),
    "fe80::/10": ("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
    "fec0::/10": (None, None),
    "ff00::/8": (None, None),
}


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
