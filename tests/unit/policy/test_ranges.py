from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.policy import CLOSED, closed, plain
from atoll.policy.ranges import never_open, only_closed, touches_closed
from tests.unit.closed_ranges import BORDERS


def test_every_closed_range_has_its_borders_tested() -> None:
    assert set(BORDERS) == set(CLOSED)


@pytest.mark.parametrize("text", sorted(CLOSED))
def test_a_closed_range_is_closed_up_to_its_borders_and_no_further(text: str) -> None:
    network = ipaddress.ip_network(text)
    before, after = BORDERS[text]
    assert closed(plain(str(network[0]))) == CLOSED[text]
    assert closed(plain(str(network[-1]))) == CLOSED[text]
    for neighbour in (before, after):
        if neighbour:
            assert closed(plain(neighbour)) is None
    if before:
        assert int(ipaddress.ip_address(before)) == int(network[0]) - 1
    if after:
        assert int(ipaddress.ip_address(after)) == int(network[-1]) + 1


def test_no_closed_range_overlaps_another() -> None:
    networks = [ipaddress.ip_network(text) for text in CLOSED]
    for one in networks:
        assert [other for other in networks if other.version == one.version and other.overlaps(one)] == [one]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.254.0.1", "169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "::1"],
)
def test_what_must_never_be_reached_by_itself_is_closed(address: str) -> None:
    assert closed(plain(address))


@pytest.mark.parametrize("address", ["203.0.113.10", "198.51.100.10", "192.0.2.10", "2001:db8::1"])
def test_documentation_ranges_are_public_because_gateways_resolve_public_names_into_them(
    address: str,
) -> None:
    assert closed(plain(address)) is None


@pytest.mark.parametrize("carrier", ["::ffff:", "64:ff9b::"])
def test_an_ipv4_address_inside_an_ipv6_one_is_judged_as_itself(carrier: str) -> None:
    assert closed(plain(f"{carrier}10.0.0.1")) == "private"
    assert closed(plain(f"{carrier}8.8.8.8")) is None
    assert plain(f"{carrier}8.8.8.8") == ipaddress.ip_address("8.8.8.8")


@pytest.mark.parametrize(
    "text",
    ["fe80::1%eth0", "2606:4700::1%1", "::ffff:8.8.8.8%1", "8.8.8", "010.1.1.1", "8.8.8.8 ", "0x8", "x", ""],
)
def test_what_is_no_address_or_has_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        plain(text)


@settings(deadline=None, derandomize=True, database=None)
@given(st.ip_addresses() | st.sampled_from([ipaddress.ip_network(text)[0] for text in CLOSED]))
def test_an_address_is_closed_just_if_a_closed_range_has_it(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    found = [reason for text, reason in CLOSED.items() if address in ipaddress.ip_network(text)]
    assert closed(address) == (found[0] if found else None)


@pytest.mark.parametrize(
    ("text", "never", "touches", "only"),
    [
        ("10.1.0.0/16", False, True, True),
        ("10.0.0.0/7", False, True, False),
        ("8.0.0.0/5", False, True, False),
        ("8.8.8.0/24", False, False, False),
        ("127.0.0.0/24", True, True, True),
        ("0.0.0.0/0", True, True, False),
        ("::/0", True, True, False),
        ("fd00::/8", False, True, True),
        ("2606:4700::/32", False, False, False),
        ("198.18.0.0/16", True, True, True),
        ("169.254.169.254/32", False, True, True),
    ],
)
def test_what_a_range_has_of_closed_ones(text: str, never: bool, touches: bool, only: bool) -> None:
    network = ipaddress.ip_network(text)
    assert (never_open(network), touches_closed(network), only_closed(network)) == (never, touches, only)
