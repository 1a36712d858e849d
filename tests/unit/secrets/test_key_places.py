"""The key of the secrets: in a file of this user alone, or in the system's keyring."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from atoll.errors import HostError
from atoll.secrets import KeyFile, Keyring


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets.key"


class FakeKeyring(ModuleType):
    """What the package ``keyring`` offers."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.entries[service, name] = text


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    there = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", there)
    return there


def test_a_key_is_made_once_for_this_user_alone(path: Path) -> None:
    source = KeyFile(path)
    assert source.read() is None
    key = source.create()
    assert len(key) == 32
    assert (path.stat().st_mode & 0o7777, path.stat().st_uid) == (0o600, os.geteuid())
    assert source.create() == source.read() == KeyFile(path).read() == key
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_umask_that_lets_others_in_does_not_and_one_that_keeps_all_out_does_not_either(path: Path) -> None:
    for mask in (0o000, 0o777):
        before = os.umask(mask)
        try:
            assert len(KeyFile(path).create()) == 32
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o7777 == 0o600
        path.unlink()


def test_of_two_that_make_one_at_once_both_get_the_same(path: Path) -> None:
    ready = threading.Barrier(2)
    real = os.link

    def linked(source: Path, target: Path) -> None:
        ready.wait(10)  # both have seen that there is none
        real(source, target)

    with patch("atoll.secrets.key_file.os.link", linked), ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: KeyFile(path).create(), range(2))
    assert first == second == KeyFile(path).read()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_a_key_that_others_can_reach_is_refused_with_the_remedy(path: Path, mode: int) -> None:
    KeyFile(path).create()
    path.chmod(mode)
    for attempt in (KeyFile(path).read, KeyFile(path).create):
        with pytest.raises(HostError, match=f"its mode is {mode:04o}") as raised:
            attempt()
        assert f"chmod 600 {path}" in str(raised.value)
    path.chmod(0o400)
    assert KeyFile(path).read()


def test_a_key_of_another_user_is_refused(path: Path) -> None:
    KeyFile(path).create()
    with patch("atoll.secrets.key_file.os.geteuid", lambda: path.stat().st_uid + 1):
        with pytest.raises(HostError, match="belongs to user"):
            KeyFile(path).read()


@pytest.mark.parametrize("content", [b"", b"12", b"x" * 64, b"0" * 63, b"0" * 66, b"\xff" * 64])
def test_a_file_without_a_key_is_refused_and_stays(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(HostError, match="has no key"):
        KeyFile(path).create()
    assert path.read_bytes() == content


def test_a_pipe_or_a_directory_in_its_place_holds_nobody(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(HostError, match="not a file"):
        KeyFile(path).create()
    path.unlink()
    path.mkdir()
    with pytest.raises(HostError, match="not a file"):
        KeyFile(path).create()


def test_a_key_may_lie_on_another_disk(path: Path, tmp_path: Path) -> None:
    (tmp_path / "stick").mkdir()
    key = KeyFile(tmp_path / "stick" / "key").create()
    path.symlink_to(tmp_path / "stick" / "key")
    assert KeyFile(path).create() == key


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be written"):
        KeyFile(tmp_path / "missing" / "secrets.key").create()


def test_the_keyring_keeps_one_key_for_each_home(keyring: FakeKeyring) -> None:
    one, other = Keyring(Path("/a")), Keyring(Path("/b"))
    assert one.read() is None
    key = one.create()
    assert one.create() == one.read() == Keyring(Path("/a")).read() == key
    assert other.create() != key
    assert set(keyring.entries) == {("atoll", "/a"), ("atoll", "/b")}


def test_without_the_package_the_setting_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(HostError, match="not installed") as raised:
        Keyring(Path("/a")).read()
    assert "unset ATOLL_SECRETS_KEYRING" in str(raised.value)


def test_a_keyring_that_fails_or_hangs_or_keeps_nothing_is_no_traceback(keyring: FakeKeyring) -> None:
    def fail(*_: str) -> None:
        raise RuntimeError("with something private in it")

    with patch.object(keyring, "get_password", fail), pytest.raises(HostError, match="RuntimeError") as told:
        Keyring(Path("/a")).read()
    assert "private" not in str(told.value)
    hung = threading.Event()
    with (
        patch.object(keyring, "get_password", lambda *_: hung.wait(30)),
        patch("atoll.secrets.keyring._ANSWER_S", 0.05),
        pytest.raises(HostError, match="did not answer"),
    ):
        Keyring(Path("/a")).read()
    hung.set()
    with patch.object(keyring, "set_password", lambda *_: None), pytest.raises(HostError, match="not keep"):
        Keyring(Path("/a")).create()
    keyring.entries["atoll", "/a"] = "no key"
    with pytest.raises(HostError, match="no key"):
        Keyring(Path("/a")).create()
