from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.errors import HostError
from atoll.host import Home


def test_a_short_home_keeps_its_sockets_in_itself() -> None:
    home = Home("/home/someone/.local/share/atoll")
    assert home.run == Path("/home/someone/.local/share/atoll/run")
    assert home.api_socket.parent == home.dial_socket.parent == home.lock.parent == home.run


def test_sockets_of_a_very_long_home_still_have_short_paths(tmp_path: Path) -> None:
    home = Home(tmp_path / ("x" * 200))
    assert len(os.fsencode(home.api_socket)) < 60
    assert home.run == Home(tmp_path / ("x" * 200)).run
    assert home.run != Home(tmp_path / ("y" * 200)).run


def test_the_run_directory_does_not_depend_on_the_login_session(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Home("/srv/atoll").run
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/4711")
    assert Home("/srv/atoll").run == before


def test_the_home_is_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_HOME", "/srv/elsewhere")
    assert Home.default().path == Path("/srv/elsewhere")
    monkeypatch.delenv("ATOLL_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert Home.default().path == Path("/home/someone/.local/share/atoll")


def test_making_a_home_shuts_everybody_else_out(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home", run=tmp_path / "run")
    home.make()
    home.images.chmod(0o777)
    home.make()
    for directory in (
        home.path,
        home.images,
        home.sandboxes,
        home.snapshots,
        home.layers,
        home.bin,
        home.run,
    ):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_symlink_in_place_of_the_run_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / "run").symlink_to("trap")
    with pytest.raises(HostError, match="run is not a directory"):
        Home(tmp_path / "home", run=tmp_path / "run").make()
