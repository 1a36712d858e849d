"""Addresses of ports at a server of the home are found by its records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.errors import StateError
from atoll.host import Home, start_ticks
from atoll.protocol import ServerRecord, record_name
from atoll.sdk._links import url_of
from atoll.types.internal import as_json

ID = "abcdefghij0123456789"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "server").mkdir()
    return Home(tmp_path)


def record(home: Home, number: int, names: str | None, scheme: str = "http", *, alive: bool = True) -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    told = ServerRecord(pid=os.getpid(), started_ticks=ticks if alive else 0, scheme=scheme, names=names)
    (home.path / "server" / record_name(number)).write_bytes(as_json(told))


def test_a_server_with_a_domain_is_preferred(home: Home) -> None:
    record(home, 1, "localhost:3000")
    record(home, 2, "sbx.test", "https")
    record(home, 3, "dead.test", alive=False)
    assert url_of(home, ID, 8000, None) == f"https://8000-{ID}.sbx.test/"


def test_without_a_server_the_remedy_is_named(home: Home) -> None:
    with pytest.raises(StateError, match="no server runs") as caught:
        url_of(home, ID, 8000, None)
    assert "atoll serve" in str(caught.value.hint)
    (home.path / "server" / "running-1.json").write_bytes(b"no JSON")
    record(home, 2, None)
    with pytest.raises(StateError, match="no name leads"):
        url_of(home, ID, 8000, None)


def test_without_its_secret_nothing_can_be_signed(home: Home) -> None:
    record(home, 1, "localhost:3000")
    with pytest.raises(StateError, match="secret cannot be read"):
        url_of(home, ID, 8000, 60)
