"""How an ask says its address."""

from __future__ import annotations

import pytest

from atoll.types import Ask


@pytest.mark.parametrize(
    ("scheme", "port", "url"),
    [
        ("https", 443, "https://pay.example/v1/charges?to=a"),
        ("https", 8443, "https://pay.example:8443/v1/charges?to=a"),
        ("http", 80, "http://pay.example/v1/charges?to=a"),
        ("http", 443, "http://pay.example:443/v1/charges?to=a"),
    ],
)
def test_an_address_has_its_port_unless_the_scheme_has_it_anyway(scheme: str, port: int, url: str) -> None:
    asked = Ask(
        ask_id="a",
        sandbox_id="s",
        kind="request",
        title="",
        digest="",
        at=0,
        deadline=1,
        scheme=scheme,
        host="pay.example",
        port=port,
        path="/v1/charges?to=a",
    )
    assert asked.url == url
