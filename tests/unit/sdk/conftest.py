"""A supervisor that answers what a test tells it to, for every test of the SDK."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.sdk.fakes import FakeSupervisor

from atoll import Sandbox


@pytest.fixture
def home_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where ``ATOLL_HOME`` points: a path so short that its sockets lie below it. Not made yet."""
    with tempfile.TemporaryDirectory(prefix="atoll-", dir="/tmp") as directory:
        monkeypatch.setenv("ATOLL_HOME", f"{directory}/home")
        yield Path(directory) / "home"


@pytest.fixture
def supervisor(home_path: Path) -> Iterator[FakeSupervisor]:
    """A fake for the home that ``ATOLL_HOME`` names."""
    with FakeSupervisor(home_path) as fake:
        yield fake


@pytest.fixture
def sandbox(supervisor: FakeSupervisor) -> Iterator[Sandbox]:
    """A sandbox of the fake."""
    with Sandbox.create() as sandbox:
        yield sandbox
