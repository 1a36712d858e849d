"""A sandbox behind a server, in which a server listens that proxies get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.gateway.clients import (
    AGENT,
    BOUND_S,
    PORT,
    headers_of,
    start_port_server,
    token_of,
)
from tests.e2e.server import Server

from atoll import Hosting, Sandbox


@pytest.fixture(scope="module")
def box(server: Server) -> Iterator[Sandbox]:
    """A sandbox of the team `default`, in which a server listens that proxies get wrong."""
    del server
    with Sandbox.create(hosting=Hosting(team="default")) as made:
        start_port_server(made)
        yield made


@pytest.fixture
def port(server: Server, box: Sandbox) -> Iterator[httpx.Client]:
    """A client of the server inside."""
    with httpx.Client(base_url=server.url, headers=headers_of(box.id, PORT), timeout=BOUND_S) as client:
        yield client


@pytest.fixture
def agent(server: Server, box: Sandbox, module_home: Path) -> Iterator[httpx.Client]:
    """A client of the sandbox's agent, with the token."""
    headers = headers_of(box.id, AGENT) | {"x-access-token": token_of(box.id, module_home)}
    with httpx.Client(base_url=server.url, headers=headers, timeout=BOUND_S) as client:
        yield client
