"""What clients of the remote API may name in policies: for their sandboxes, and for the host that connects for them."""

from __future__ import annotations

import ipaddress

import pytest

from atoll.errors import InvalidSpecError
from atoll.server.remote.network import check_remote
from atoll.types import Policy, Rule, UpstreamProxy

LAN = ipaddress.ip_network("10.1.0.0/16")


def behind(url: str, *addresses: str) -> Policy:
    return Policy(rules=(Rule(hosts=("*",)),), proxy=UpstreamProxy(url=url, addresses=addresses))


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("http://127.0.0.1:19555", ("127.0.0.1",)),
        ("socks5://ann:pw@127.9.9.9:1080", ("127.0.0.0/8",)),
        ("http://[::1]:80", ("::1",)),
        ("http://[::ffff:127.0.0.1]:80", ()),
        ("http://[64:ff9b::7f00:1]:80", ("0.0.0.0/0",)),
        ("http://0.0.0.0:80", ("0.0.0.0/8",)),
        ("http://169.254.169.254:80", ("169.254.169.254",)),
        ("http://[fd00:ec2::254]:80", ("fd00:ec2::254",)),
        ("socks5://10.2.0.1:1080", ("10.2.0.0/16",)),
        ("http://proxy.example:3128", ("10.0.0.0/8",)),
        ("http://proxy.example:3128", ("0.0.0.0/1", "128.0.0.0/1")),
        ("http://proxy.example:3128", ("::/0",)),
    ],
)
def test_the_host_connects_to_no_proxy_of_a_client_that_is_not_public(
    url: str, addresses: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidSpecError, match="the proxy is at"):
        check_remote(behind(url, *addresses), (LAN,))


def test_the_operator_opens_a_range_for_proxies_too() -> None:
    for policy in (
        behind("http://10.1.2.3:3128", "10.1.2.3"),
        behind("http://proxy.example:3128", "10.1.2.0/24"),
    ):
        check_remote(policy, (LAN,))
        with pytest.raises(InvalidSpecError, match="atoll serve --private-range"):
            check_remote(policy, ())
    check_remote(behind("socks5://8.8.8.8:1080"), ())


def test_an_opened_range_does_not_open_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.server.remote.network.is_this_host", lambda address: address == "10.1.0.7")
    with pytest.raises(InvalidSpecError, match="the server's own machine"):
        check_remote(behind("http://10.1.0.7:3128", "10.1.0.7"), (LAN,))
