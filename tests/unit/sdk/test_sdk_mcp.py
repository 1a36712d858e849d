from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import InvalidSpecError, StateError
from atoll.sdk import McpAddress


class Forward:
    """A forward that says whether it is open."""

    url = "http://127.0.0.1:4000"

    def __init__(self) -> None:
        self.is_open = False

    def __enter__(self) -> Forward:
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False


def opened(served: str | None, path: str = "/mcp") -> tuple[str, bool]:
    """The address while it is open, and whether that takes a forward. ``None`` is no server."""

    def answer() -> str:
        if served is None:
            raise StateError("no server runs")
        return served

    forward: Any = Forward()
    address = McpAddress(forward, answer, path)
    with pytest.raises(StateError):
        _ = address.url
    with address:
        found = address.url, forward.is_open
    assert not forward.is_open
    return found


def test_the_address_is_the_servers_if_that_has_a_domain_and_else_a_forwarded_port() -> None:
    assert opened("https://8000-a1.sandboxes.example.com/") == (
        "https://8000-a1.sandboxes.example.com/mcp",
        False,
    )
    assert opened("http://8000-a1.localhost:3000/") == ("http://127.0.0.1:4000/mcp", True)
    assert opened(None, "/a/b?c=d") == ("http://127.0.0.1:4000/a/b?c=d", True)


@pytest.mark.parametrize("path", ["", "mcp", "/a b", "/é", "/a\r\nb"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidSpecError):
        opened(None, path)
