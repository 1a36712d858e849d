from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.policy.masks import RuleIndex, members, ports_of
from atoll.policy.ports import EVERY_PORT, WEB_PORTS, port_ranges
from atoll.types import Rule

PORTS = st.integers(1, 65535)
RANGES = st.tuples(PORTS, PORTS).map(lambda pair: f"{min(pair)}-{max(pair)}")


@pytest.mark.parametrize(
    ("ports", "ranges"),
    [
        ((), ()),
        ((443,), ((443, 443),)),
        (("443",), ((443, 443),)),
        (("8000-8100", 80), ((80, 80), (8000, 8100))),
        ((1, 2, 3, 5), ((1, 3), (5, 5))),
        (("1-10", "5-20", "2-3"), ((1, 20),)),
        (("1-65535",), ((1, 65535),)),
    ],
)
def test_ports_become_sorted_ranges_that_do_not_meet(
    ports: tuple[int | str, ...], ranges: tuple[tuple[int, int], ...]
) -> None:
    assert port_ranges(ports) == ranges


@pytest.mark.parametrize(
    "port",
    [
        0,
        -1,
        65536,
        True,
        "",
        "-",
        "80-",
        "-80",
        "90-80",
        "0-5",
        "1-65536",
        " 80",
        "80 ",
        "80,81",
        "http",
        "４４３",
    ]
    + ["9" * 5000, "0x50", "1-2-3", "80\n", 1.5],
)
def test_what_is_no_port_is_refused(port: int | str) -> None:
    with pytest.raises(ValueError, match="is not a port or a range of ports"):
        port_ranges((port,))


def test_a_rule_about_requests_without_ports_means_those_of_the_web() -> None:
    assert ports_of(Rule(methods=("GET",))) == WEB_PORTS
    assert ports_of(Rule(protocol="http")) == WEB_PORTS
    assert ports_of(Rule(methods=("GET",), ports=(8080,))) == ((8080, 8080),)
    assert ports_of(Rule()) == EVERY_PORT


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(PORTS | RANGES, max_size=4).map(tuple), max_size=6), PORTS, PORTS)
def test_the_table_of_ports_says_which_rules_have_a_whole_range(
    ports: list[tuple[int | str, ...]], one: int, other: int
) -> None:
    first, last = min(one, other), max(one, other)
    index = RuleIndex([Rule(ports=given) for given in ports])
    expected = [
        number
        for number, given in enumerate(ports)
        if not given or any(begin <= first and last <= end for begin, end in port_ranges(given))
    ]
    assert list(members(index.at_ports(first, last))) == expected
