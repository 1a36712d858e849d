"""Which addresses a connection from here would find on this host itself."""

from __future__ import annotations

import pytest

from atoll.host import is_this_host


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "127.9.9.9", "0.0.0.0", "::", "::1"])
def test_what_leads_to_this_host_is_its_own(address: str) -> None:
    # From the second of an interface's addresses on, the kernel connects from another one than it connects to.
    assert is_this_host(address)


@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::9", "240.0.0.1", "ff02::1"])
def test_what_leads_elsewhere_or_nowhere_is_not(address: str) -> None:
    assert not is_this_host(address)
