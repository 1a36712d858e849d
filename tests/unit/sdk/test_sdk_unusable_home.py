"""A home that this user cannot use is an error of atoll with a remedy, never one of the operating system."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from tests.forked import in_child

from atoll import AsyncSandbox, Sandbox, Supervisor, Volumes
from atoll.cli.__main__ import run
from atoll.errors import HostError
from atoll.host import Home

_NOBODY = 65534
REMEDY = "set ATOLL_HOME to a directory that this user can write to"
CALLS: dict[str, Callable[[], object]] = {
    "create": Sandbox.create,
    "get": lambda: Sandbox.get("alice"),
    "list": lambda: list(Sandbox.list()),
    "connect": lambda: Sandbox.connect("alice"),
    "async get": lambda: anyio.run(AsyncSandbox.get, "alice"),
    "volumes": Volumes.list,
    "hello": Supervisor.hello,
    "stop": Supervisor.stop,
}


@pytest.fixture
def hidden(home_path: Path) -> Iterator[Path]:
    """The home that ``ATOLL_HOME`` names, in a directory that only root can enter."""
    home_path.parent.chmod(0)
    yield home_path
    home_path.parent.chmod(0o700)


def refused(call: Callable[[], object]) -> HostError:
    """What a call ends with."""
    with pytest.raises(HostError) as raised:
        call()
    return raised.value


def as_bound_user(call: Callable[[], object]) -> None:
    """Make a call as somebody whom the rights of files bind, after Python has read what it needs for that."""
    named, os.environ["ATOLL_HOME"] = os.environ["ATOLL_HOME"], "/proc/nowhere/home"
    try:
        call()
    except HostError:
        os.environ["ATOLL_HOME"] = named
    if os.geteuid() == 0:
        os.setegid(_NOBODY)
        os.seteuid(_NOBODY)
    call()


@pytest.mark.parametrize("name", CALLS)
def test_a_home_that_cannot_be_entered_is_refused_with_a_remedy(hidden: Path, name: str) -> None:
    def call() -> None:
        if os.environ["ATOLL_HOME"] != str(hidden):
            CALLS[name]()
            raise HostError("it asks nothing of a home without a supervisor")
        error = refused(CALLS[name])
        assert f"the state directory {hidden} cannot be used: Permission denied" in error.message
        assert error.hint is not None and error.hint.startswith(REMEDY)
        assert os.geteuid() != _NOBODY or f"{hidden.parent} belongs to user root" in error.message

    assert in_child(lambda: as_bound_user(call)) == ""


@pytest.mark.parametrize("command", ["ls", "create", "stop", "gc"])
def test_the_command_line_says_it_in_one_line(
    hidden: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    def call() -> None:
        code = run([command])
        if os.environ["ATOLL_HOME"] != str(hidden):
            raise HostError("what it needs is read")
        assert code == 125

    assert in_child(lambda: as_bound_user(call)) == ""
    told = capfd.readouterr().err.splitlines()[-1]
    assert told.startswith(f"atoll: the state directory {hidden} cannot be used: Permission denied")
    assert REMEDY in told and "Errno" not in told


@pytest.mark.parametrize("name", CALLS)
def test_a_home_that_is_a_file_is_refused_with_a_remedy(home_path: Path, name: str) -> None:
    home_path.write_text("mine")
    error = refused(CALLS[name])
    assert f"the state directory {home_path} cannot be used: Not a directory" in error.message
    assert error.hint == REMEDY


def test_a_home_of_another_user_is_left_as_it_is_and_nobody_is_told_to_remove_it(home_path: Path) -> None:
    if os.geteuid() == 0:
        home_path.mkdir()
        os.chown(home_path, _NOBODY, _NOBODY)
        home, owner = home_path, "nobody"
    else:
        home, owner = Path("/"), "root"
    error = refused(Home(home).make)
    assert f"{home} belongs to user {owner}" in error.message or "Permission denied" in error.message
    assert error.hint is not None and f"sudo -u {owner}" in error.hint and "rm " not in error.hint


def test_a_supervisor_of_another_user_is_not_trusted(home_path: Path) -> None:
    home = Home(home_path)
    home.make()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home.api_socket))
        if os.geteuid() == 0:
            os.seteuid(_NOBODY)
        try:
            listener.listen()  # which is when the kernel notes whose it is
        finally:
            if os.geteuid() == _NOBODY:
                os.seteuid(0)
        if os.geteuid() == 0:
            for call in (CALLS["get"], Supervisor.stop):
                assert f"the supervisor of {home_path} belongs to user nobody" in refused(call).message
        else:
            listener.close()
            assert Supervisor.hello() is None
