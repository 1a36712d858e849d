"""What spans of requests are called."""

from __future__ import annotations

import pytest

from atoll.protocol import span_attributes, span_name, trace_of


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


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"),
        ("", None),
        ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", None),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n", None),
    ],
)
def test_a_header_names_a_trace_only_as_the_standard_writes_it(header: str, trace: str | None) -> None:
    assert trace_of(header) == trace


def test_a_span_says_which_sandbox_it_concerns_and_no_query() -> None:
    assert span_attributes("GET", "/v1/sandboxes/sb-1/logs?offset=3") == {
        "http.request.method": "GET",
        "url.path": "/v1/sandboxes/sb-1/logs",
        "atoll.sandbox": "sb-1",
    }
    assert "atoll.sandbox" not in span_attributes("GET", "/v1/sandboxes")
