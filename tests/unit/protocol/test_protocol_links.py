"""Which ports have a link, and how long it may last."""

import pytest

from atoll.errors import InvalidSpecError
from atoll.protocol import AGENT_PORT, LINK, check_link, expiry_of, link_value, port_url


@pytest.mark.parametrize(("port", "expires_in_s"), [(1, None), (65535, 1), (8000, 3600.5)])
def test_a_port_of_a_server_inside_has_a_link(port: int, expires_in_s: float | None) -> None:
    check_link(port, expires_in_s)


@pytest.mark.parametrize(
    ("port", "expires_in_s"), [(0, None), (65536, None), (AGENT_PORT, None), (8000, 0.5), (8000, 1e9)]
)
def test_no_other_port_has_one_and_none_lasts_for_ever(port: int, expires_in_s: float | None) -> None:
    with pytest.raises(InvalidSpecError):
        check_link(port, expires_in_s)


def test_the_address_of_a_port_is_a_link_with_what_opens_it() -> None:
    plain = port_url("https", "example.test:8443", "k3f", 3000)
    assert plain == "https://3000-k3f.example.test:8443/"
    value = link_value(b"secret", "k3f", 3000, 1_900_000_000)
    assert port_url("https", "example.test:8443", "k3f", 3000, value) == f"{plain}?{LINK}={value}"
    assert expiry_of(value) == 1_900_000_000
    assert link_value(b"other", "k3f", 3000, 1_900_000_000) != value
