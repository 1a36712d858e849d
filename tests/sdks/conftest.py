"""The cases run under the SDKs' own interpreters, not here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server, serving

collect_ignore = ["cases"]


@pytest.fixture(scope="module")
def secure(module_home: Path) -> Iterator[Server]:
    """A server with names of its own, over TLS that it has signed itself."""
    del module_home
    with serving("--domain", "sbx.test", "--tls", "self-signed") as server:
        yield server
