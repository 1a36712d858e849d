from __future__ import annotations

import pytest

from atoll.server.gateway.hosts import BadHostError, Target, hostname, named, route

ID = "abcdefghij0123456789"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Api.Example.COM:8443", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("localhost", "localhost"),
    ],
)
def test_a_host_header_names_a_host(host: str, name: str) -> None:
    assert hostname(host) == name


@pytest.mark.parametrize(
    "host", [f"8000-{ID}.sbx.test:8443", f"8000-{ID}-client1.sbx.test", f"8000-{ID.upper()}.SBX.test."]
)
def test_a_name_below_the_domain_is_a_port_of_a_sandbox(host: str) -> None:
    assert route(host, "sbx.test") == Target(ID, 8000)


@pytest.mark.parametrize(
    "host",
    [f"0-{ID}.sbx.test", f"65536-{ID}.sbx.test", "80-short.sbx.test", f"{ID}.sbx.test", f"-80-{ID}.sbx.test"]
    + [f"80-{ID}.more.sbx.test", f"80-{ID}_.sbx.test", "other.sbx.test", f"８0-{ID}.sbx.test"],
)
def test_a_name_below_the_domain_that_no_port_has_is_refused(host: str) -> None:
    with pytest.raises(BadHostError):
        route(host, "sbx.test")


def test_the_domain_and_api_below_it_are_the_api() -> None:
    assert route("sbx.test", "sbx.test") == route("api.sbx.test:1", "sbx.test") == "api"


def test_another_domain_is_not_served() -> None:
    assert route(f"80-{ID}.evil.test", "sbx.test") == "unknown"
    assert route("notsbx.test", "sbx.test") == "unknown"


@pytest.mark.parametrize("host", ["localhost:3000", "127.0.0.1", "[::1]:3000", "sandbox.sbx.test"])
def test_addresses_and_localhost_are_shared_by_all_sandboxes(host: str) -> None:
    assert route(host, "sbx.test") == "shared"
    assert route(host, None) == "shared"


def test_without_a_domain_names_below_localhost_are_ports_of_sandboxes() -> None:
    assert route(f"3000-{ID}.localhost:8000", None) == Target(ID, 3000)
    assert route("any.name", None) == "api"


def test_headers_name_a_port_of_a_sandbox() -> None:
    assert named({b"e2b-sandbox-id": ID.encode(), b"e2b-sandbox-port": b"49983"}) == Target(ID, 49983)
    assert named({b"x": b"y"}) is None


@pytest.mark.parametrize(
    ("sandbox_id", "port"),
    [("../x", "1"), (ID, "0"), (ID, "65536"), (ID, "+1"), (ID, ""), ("", "1"), (f"{ID}\n", "1"), (ID, "1_0")],
)
def test_headers_that_name_nothing_that_can_be_are_refused(sandbox_id: str, port: str) -> None:
    with pytest.raises(BadHostError):
        named({b"e2b-sandbox-id": sandbox_id.encode(), b"e2b-sandbox-port": port.encode()})


def test_a_host_that_is_longer_than_any_name_is_refused_and_not_remembered() -> None:
    with pytest.raises(BadHostError):
        route("a" * 300, None)
    assert route("a" * 253 + ".:65535", None) == "api"
