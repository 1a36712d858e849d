"""Which server the SDK reaches: by environment, by what was stored, and never with a key in the clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import HostError, InvalidSpecError
from atoll.sdk import _bridge, _server
from atoll.sdk._server import Server

URL = "https://api.example.com"


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("ATOLL_URL", "ATOLL_API_KEY", "ATOLL_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "atoll" / "login.json"


def test_without_anything_it_is_this_machine() -> None:
    assert _server.chosen() is None
    assert not _server.forget()


def test_what_was_stored_is_used_until_it_is_forgotten(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _server.store(Server(URL, "key", "/ca.pem"))
    assert config.stat().st_mode & 0o777 == 0o600
    assert _server.chosen() == Server(URL, "key", "/ca.pem")
    assert "key" not in repr(_server.chosen()).replace("/ca.pem", "")
    monkeypatch.setenv("ATOLL_URL", "local")
    assert _server.chosen() is None
    monkeypatch.delenv("ATOLL_URL")
    assert _server.forget()
    assert _server.chosen() is None


def test_the_environment_comes_first_and_a_stored_key_goes_to_its_own_server_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _server.store(Server(URL, "stored"))
    monkeypatch.setenv("ATOLL_URL", f"{URL}/")
    assert _server.chosen() == Server(URL, "stored")
    monkeypatch.setenv("ATOLL_URL", "https://other.example.com:8443")
    with pytest.raises(InvalidSpecError, match="no key"):
        _server.chosen()
    monkeypatch.setenv("ATOLL_API_KEY", "given")
    found = _server.chosen()
    assert found == Server("https://other.example.com:8443", "given")
    assert found is not None and (found.address, found.host) == (
        ("other.example.com", 8443),
        "other.example.com:8443",
    )


@pytest.mark.parametrize(
    "url",
    [
        "api.example.com",
        "ftp://api.example.com",
        "https://",
        "https://user:secret@api.example.com",
        "https://api.example.com/path",
        "https://api.example.com?x=1",
        "https://api.example.com:port",
        "http://api.example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
    ],
)
def test_a_key_goes_nowhere_else(url: str) -> None:
    with pytest.raises(InvalidSpecError):
        Server(url, "key").check()


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", "http://localhost", "http://[::1]:80", URL])
def test_plain_http_is_for_this_machine(url: str) -> None:
    assert Server(url, "key").check().url == url


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "é"])
def test_what_cannot_be_a_key_is_not_sent(key: str) -> None:
    with pytest.raises(InvalidSpecError, match="no key"):
        Server(URL, key).check()


def test_a_broken_file_is_told(config: Path) -> None:
    config.parent.mkdir()
    config.write_text("{")
    with pytest.raises(HostError, match="no stored login"):
        _server.chosen()


def test_authorities_are_read_once_until_their_file_is_replaced(tmp_path: Path) -> None:
    assert _bridge._tls(None, None) is _bridge._tls(None, None)
    file, other = tmp_path / "authority.pem", tmp_path / "other.pem"
    file.write_text("one")
    before = _bridge._written(str(file))
    assert before == _bridge._written(str(file))
    other.write_text("two")
    other.replace(file)
    assert _bridge._written(str(file)) != before
    assert _bridge._written(None) is None
