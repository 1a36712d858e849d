"""A signed link opens one port of one sandbox until it ends, and is exchanged for a cookie."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from atoll.host import start_ticks
from atoll.protocol import LINK, ServerRecord, link_value, record_name
from atoll.server.announcement import announced
from atoll.server.gateway.headers import to_client, to_guest
from atoll.server.gateway.hosts import Target
from atoll.server.gateway.links import LinkCheck
from atoll.server.gateway.rejections import Rejection
from atoll.server.gateway.request import GatewayRequest
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens
from atoll.types.internal import as_json, from_json

SECRET = b"s" * 32
ID, OTHER = "abcdefghij0123456789", "bbcdefghij0123456789"
HOST = f"8000-{ID}.sbx.test".encode()
NOW = 1_000_000.0
LINKS = LinkCheck(Tokens(SECRET))


def value(port: int = 8000, *, sandbox_id: str = ID, ends_at: int = 1_000_060, secret: bytes = SECRET) -> str:
    return link_value(secret, sandbox_id, port, ends_at)


def request(
    query: str = "", *headers: tuple[bytes, bytes], path: bytes = b"/a%20b", method: str = "GET"
) -> GatewayRequest:
    all_headers = [(b"host", HOST), *headers]
    return GatewayRequest(
        target=Target(ID, 8000),
        method=method,
        path=path,
        query=query.encode(),
        headers=all_headers,
        host=HOST,
        peer="192.0.2.1",
        scheme="https",
        is_h2=False,
        patience_s=1.0,
        named=dict(all_headers),
    )


def cookie(text: str) -> tuple[bytes, bytes]:
    return b"cookie", f"__Host-{LINK}={text}".encode()


def test_a_link_is_exchanged_for_a_cookie_of_this_host_alone() -> None:
    with pytest.raises(Rejection) as caught:
        LINKS.checked(request(f"x=1&{LINK}={value()}&y=2"), NOW)
    headers = dict(caught.value.headers)
    assert caught.value.status == 303
    assert headers[b"location"] == b"/a%20b?x=1&y=2"
    expected = f"__Host-{LINK}={value()}; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure"
    assert headers[b"set-cookie"] == expected.encode()
    assert headers[b"referrer-policy"] == b"no-referrer"


def test_over_plain_http_the_cookie_is_not_for_https_alone() -> None:
    with pytest.raises(Rejection) as caught:
        LINKS.checked(replace(request(f"{LINK}={value()}"), scheme="http"), NOW)
    kept = dict(caught.value.headers)[b"set-cookie"]
    assert kept.startswith(f"{LINK}={value()}; ".encode())
    assert not kept.endswith(b"Secure")
    plain = replace(request("", (b"cookie", f"{LINK}={value()}".encode())), scheme="http")
    assert LINKS.checked(plain, NOW).opened_until == 1_000_060


@pytest.mark.parametrize(
    "text",
    [
        value(8001),
        value(sandbox_id=OTHER),
        value(secret=b"t" * 32),
        value(ends_at=1_000_000),
        value().replace("1000060", "1000061"),
        "1000060.",
        "",
        "x",
        "9" * 500,
        "é",
    ],
)
def test_another_or_an_old_link_opens_nothing(text: str) -> None:
    with pytest.raises(Rejection) as caught:
        LINKS.checked(request(f"{LINK}={text}"), NOW)
    assert caught.value.status == 403
    passed = LINKS.checked(request("", cookie(text)), NOW)
    assert passed.opened_until is None
    assert passed.headers == [(b"host", HOST)]


def test_two_links_at_once_open_nothing() -> None:
    with pytest.raises(Rejection, match="403"):
        LINKS.checked(request(f"{LINK}={value()}&{LINK}={value()}"), NOW)


@pytest.mark.parametrize("path", [b"//evil.test/", b"/\\evil.test/"])
def test_no_link_sends_the_browser_to_another_host(path: bytes) -> None:
    with pytest.raises(Rejection, match="400"):
        LINKS.checked(request(f"{LINK}={value()}", path=path), NOW)


def test_what_cannot_be_sent_elsewhere_passes_without_its_link() -> None:
    query = f"{LINK}={value()}&x=1"
    for passed in (
        LINKS.checked(request(query, method="POST"), NOW),
        LINKS.checked(request(query), NOW, is_socket=True),
    ):
        assert passed.opened_until == 1_000_060
        assert passed.line_target == b"/a%20b?x=1"


def test_a_cookie_opens_the_port_and_is_not_seen_inside() -> None:
    other = f"a=1; {LINK}=9.junk; __Host-{LINK} =1; b=2".encode()
    passed = LINKS.checked(request("", (b"cookie", other), cookie(value())), NOW)
    assert passed.opened_until == 1_000_060
    assert passed.headers == [(b"host", HOST), (b"cookie", b"a=1; b=2")]
    assert LINK.encode() not in passed.head([])


def test_false_cookies_before_the_right_one_hide_it_from_nobody() -> None:
    false = "; ".join([f"__Host-{LINK}=1000070.{'x' * 43}"] * 500)
    passed = LINKS.checked(request("", (b"cookie", f"{false}; __Host-{LINK}={value()}".encode())), NOW)
    assert passed.opened_until == 1_000_060


def test_in_https_a_cookie_that_another_host_can_set_does_not_count() -> None:
    passed = LINKS.checked(request("", (b"cookie", f"{LINK}={value()}".encode())), NOW)
    assert passed.opened_until is None
    assert passed.headers == [(b"host", HOST)]


@pytest.mark.parametrize(
    "kept",
    [
        f"{LINK}=x; Domain=sbx.test",
        f" {LINK} = x",
        f"={LINK}=x",
        f"__Host-{LINK}=x; Secure",
        f"= {LINK}",
        LINK,
    ],
)
def test_a_server_inside_sets_no_cookie_of_links(kept: str) -> None:
    mine = (b"set-cookie", f"{LINK}ed=1".encode())
    assert to_client([(b"set-cookie", kept.encode()), mine]) == [mine]


@pytest.mark.parametrize(
    "name",
    [b"x_forwarded_for", b"X.Forwarded-For".lower(), b"x_real_ip", b"e2b_traffic_access_token", b"x-api_key"],
)
def test_a_name_that_a_server_reads_as_a_trusted_one_is_dropped(name: bytes) -> None:
    assert to_guest([(name, b"203.0.113.9"), (b"my_header", b"1")]) == [(b"my_header", b"1")]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"origin", f"https://8000-{OTHER}.sbx.test".encode())],
        [(b"origin", b"null")],
        [(b"sec-fetch-site", b"same-site"), (b"sec-fetch-mode", b"no-cors")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"cors")],
    ],
)
def test_a_page_of_another_sandbox_cannot_use_the_cookie(headers: list[tuple[bytes, bytes]]) -> None:
    passed = LINKS.checked(request("", cookie(value()), *headers), NOW, is_socket=True)
    assert passed.opened_until is None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"origin", b"https://" + HOST)],
        [(b"sec-fetch-site", b"same-origin"), (b"sec-fetch-mode", b"cors")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")],
    ],
)
def test_its_own_pages_and_those_who_go_there_can(headers: list[tuple[bytes, bytes]]) -> None:
    assert LINKS.checked(request("", cookie(value()), *headers), NOW).opened_until


def test_no_link_opens_the_agent() -> None:
    asked = replace(request(f"{LINK}={value(49983)}"), target=Target(ID, 49983))
    assert LINKS.checked(asked, NOW) == asked


def test_a_server_is_recorded_while_it_runs_and_dead_ones_are_not(tmp_path: Path) -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    dead = ServerRecord(pid=os.getpid(), started_ticks=ticks - 1, scheme="http", names="localhost:1")
    (tmp_path / "running-1.json").write_bytes(as_json(dead))
    (tmp_path / "running-2.json").write_bytes(b"{")
    mine = tmp_path / record_name(os.getpid())
    with announced(Settings(host="127.0.0.1", port=3000), tmp_path):
        assert not (tmp_path / "running-1.json").exists()
        record = from_json(mine.read_bytes(), ServerRecord)
        assert (record.scheme, record.names) == ("http", "localhost:3000")
    assert not mine.exists()
