"""What spans of requests are called."""

from __future__ import annotations

import pytest

from atoll.protocol import span_attributes, span_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/sandboxes", "POST sandboxes"),
        ("/v1/sandboxes/sb-1", "POST sandboxes"),
        ("/v1/sandboxes/sb-1/fork", "POST sandboxes/fork"),
        ("/v1/sandboxes/sb-1/fork?count=2", "POST sandboxes/fork"),
        ("/v1/volumes/data/files/a/b", "POST volumes/files"),
        ("/", "POST"),
        ("", "POST"),
    ],
)
def test_requests_of_one_kind_share_a_name(path: str, name: str) -> None:
    assert span_name("POST", path) == name


def test_a_span_says_which_sandbox_it_concerns_and_no_query() -> None:
    assert span_attributes("GET", "/v1/sandboxes/sb-1/logs?offset=3") == {
        "http.request.method": "GET",
        "url.path": "/v1/sandboxes/sb-1/logs",
        "atoll.sandbox": "sb-1",
    }
    assert "atoll.sandbox" not in span_attributes("GET", "/v1/sandboxes")
