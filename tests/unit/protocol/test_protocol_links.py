"""Which ports have a link, and how long it may last."""

import pytest

from atoll.errors import InvalidSpecError
from atoll.protocol import AGENT_PORT, check_link


@pytest.mark.parametrize(("port", "expires_in_s"), [(1, None), (65535, 1), (8000, 3600.5)])
def test_a_port_of_a_server_inside_has_a_link(port: int, expires_in_s: float | None) -> None:
    check_link(port, expires_in_s)


@pytest.mark.parametrize(
    ("port", "expires_in_s"), [(0, None), (65536, None), (AGENT_PORT, None), (8000, 0.5), (8000, 1e9)]
)
def test_no_other_port_has_one_and_none_lasts_for_ever(port: int, expires_in_s: float | None) -> None:
    with pytest.raises(InvalidSpecError):
        check_link(port, expires_in_s)
