"""Secrets through the SDK and the command line, and where their values are not afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.command_line import atoll, rest, said, started, until
from tests.homes import contents_of, processes_of
from tests.secret_forms import forms
from tests.waiting import until as wait_until

from atoll import AsyncSecrets, Sandbox, Secrets, Supervisor, Teams
from atoll.errors import DamagedError, InvalidSpecError, NameTakenError, NotFoundError, SecretNotFoundError
from atoll.host import Home
from atoll.types import SecretInfo

FIRST = "first/value+of a:secret-3141592653"
SECOND = "second/value?of=a&secret-2718281828"


SEARCHED = [*forms(FIRST), *forms(SECOND)]


def own_parents() -> set[int]:
    """This process and those that it comes from: their command lines may show a test's parameters."""
    pids, pid = set(), os.getpid()
    while pid > 1:
        pids.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pids


def leaks(home: Path, searched: Sequence[bytes] = SEARCHED) -> list[str]:
    """Files of the home, and command lines and environments on the host, that have a value in any form."""
    found = []
    for path, data in contents_of(home, without=("images",)):
        found += [f"{path}: {form!r}" for form in searched if form in data]
    places = [
        entry / name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) not in own_parents()
        for name in ("cmdline", "environ")
    ]
    for place in places:
        with contextlib.suppress(OSError):
            data = place.read_bytes()
            found += [f"{place}: {form!r}" for form in searched if form in data]
    return found


def found_at(home: Path, place: str) -> bool:
    return any(found.startswith(place) for found in leaks(home))


def kill_supervisor(home: Path) -> None:
    for line in processes_of(Home(home)):
        pid, _, command = line.partition(": ")
        if "atoll.supervisor" in command:
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def empty(module_home: Path) -> Iterator[Path]:
    yield module_home
    for info in Secrets.list():
        Secrets.delete(info.secret_id)
    for team in Teams.list():
        Teams.delete(team.name)


def test_a_secret_is_made_listed_changed_and_deleted(empty: Path) -> None:
    Teams.create("reef")
    info = Secrets.create("Mail", FIRST, hosts=["API.example.com"], metadata={"for": "ci"})
    assert isinstance(info, SecretInfo)
    assert (info.name, info.hosts, info.metadata, info.version) == (
        "mail",
        ("api.example.com",),
        {"for": "ci"},
        1,
    )
    assert Secrets.get("mail") == Secrets.get("MAIL") == Secrets.get(info.secret_id) == info
    other = Secrets.create("mail", SECOND, team="reef", canary=True)
    assert Secrets.list() == [info, other]
    assert Secrets.list(team="reef") == [other]
    assert Secrets.get("mail", team="reef").canary
    with pytest.raises(NameTakenError):
        Secrets.create("MAIL", SECOND)
    changed = Secrets.update("mail", SECOND)
    assert (changed.version, changed.hosts, changed.secret_id) == (2, info.hosts, info.secret_id)
    assert Secrets.update("mail", hosts=[]).hosts == ()
    assert Secrets.update("mail", metadata={}).metadata == {}
    with pytest.raises(InvalidSpecError, match="nothing"):
        Secrets.update("mail")
    Secrets.delete("mail")
    with pytest.raises(SecretNotFoundError) as missing:
        Secrets.get("mail")
    assert (missing.value.code, isinstance(missing.value, NotFoundError)) == ("secret_not_found", True)
    assert Secrets.list() == [other]


def test_the_async_sdk_does_the_same(empty: Path) -> None:
    async def work() -> None:
        info = await AsyncSecrets.create("mail", FIRST)
        assert await AsyncSecrets.list() == [info]
        assert (await AsyncSecrets.update("mail", SECOND)).version == 2
        assert (await AsyncSecrets.get(info.secret_id)).name == "mail"
        await AsyncSecrets.delete("mail")
        with pytest.raises(SecretNotFoundError):
            await AsyncSecrets.delete("mail")

    asyncio.run(work())


def test_the_command_line_takes_a_value_from_standard_input_and_from_a_file(
    empty: Path, tmp_path: Path
) -> None:
    made = atoll("secret", "create", "mail", "--host", "a.example", "--json", stdin=f"{FIRST}\n".encode())
    assert made.returncode == 0, made.stderr
    info = json.loads(made.stdout)
    assert (info["name"], info["hosts"], "value" in info, "sealed" in info) == (
        "mail",
        ["a.example"],
        False,
        False,
    )
    (tmp_path / "value").write_text(f"{SECOND}\r\n")
    fake = said("secret", "create", "bait", "--canary", "--from-file", str(tmp_path / "value"))
    assert Secrets.get("bait").secret_id == fake
    listed = said("secret", "ls")
    assert [line.split()[1:-2] for line in listed.splitlines()][1:] == [
        ["mail", "-", "a.example", "-", "1"],
        ["bait", "-", "any", "canary", "1"],
    ]
    assert [one["name"] for one in json.loads(said("secret", "ls", "--json"))] == ["mail", "bait"]
    assert said("secret", "update", "mail", "--from-file", str(tmp_path / "value")) == info["secret_id"]
    changed = json.loads(said("secret", "update", "mail", "--keep-value", "--any-host", "--json"))
    assert (changed["version"], changed["hosts"]) == (3, [])
    deleted = atoll("secret", "delete", "mail", "bait", "nobody", "--json")
    assert (deleted.returncode, json.loads(deleted.stdout)) == (125, {"deleted": ["mail", "bait"]})
    assert json.loads(deleted.stderr)["error"]["code"] == "secret_not_found"
    assert Secrets.list() == []


@pytest.mark.parametrize("words", [[FIRST], ["--value", FIRST], [f"--value={FIRST}"], ["--", FIRST]], ids=len)
def test_a_value_among_the_arguments_is_explained_and_not_repeated(
    module_home: Path, words: list[str]
) -> None:
    for command in ("create", "update"):
        refused = atoll("secret", command, "mail", *words, stdin=SECOND.encode())
        assert refused.returncode == 125
        assert b"a secret's value is never an argument" in refused.stderr
        assert b"--from-file" in refused.stderr
        assert FIRST.encode() not in refused.stdout + refused.stderr
    assert Secrets.list() == []


@pytest.mark.parametrize("given", [b"", b"\n", b"a\nb", b"\xff", b"x" * 65537, b"a\0b"], ids=len)
def test_what_is_no_value_is_refused(module_home: Path, given: bytes) -> None:
    refused = atoll("secret", "create", "mail", "--json", stdin=given)
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (125, "invalid_spec")
    assert Secrets.list() == []


def test_on_a_terminal_the_value_is_asked_for_and_not_shown(empty: Path) -> None:
    ours, theirs = pty.openpty()
    with started("secret", "create", "mail", stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = until(ours, b"Value:")
        os.write(ours, f"{FIRST}\n".encode())
        shown += until(ours, b"Once more:")
        os.write(ours, f"{FIRST}\n".encode())
        shown += until(ours, b"sec_")
        rest(ours)
        assert process.wait(60) == 0
    os.close(ours)
    assert FIRST.encode() not in shown
    assert Secrets.get("mail").version == 1


def test_the_search_for_a_value_finds_it_wherever_it_is(module_home: Path) -> None:
    for number, form in enumerate(SEARCHED):
        (module_home / "found").write_bytes(b"x" * number + form + b"y")
        assert any(place.startswith(f"{module_home}/found: ") for place in leaks(module_home))
    (module_home / "found").unlink()
    assert leaks(module_home) == []
    for words, more in (("cmdline", [FIRST]), ("environ", [])):
        environment = {**os.environ, **({"TOKEN": FIRST} if not more else {})}
        with subprocess.Popen([sys.executable, "-c", "input()", *more], stdin=-1, env=environment) as process:
            try:
                place = f"/proc/{process.pid}/{words}: "
                wait_until(partial(found_at, module_home, place))
            finally:
                process.kill()


def test_no_value_is_in_the_home_nor_in_the_list_of_processes(home: Path) -> None:
    os.environ["ATOLL_LOG"] = "debug"
    try:
        Secrets.create("mail", FIRST)
    finally:
        del os.environ["ATOLL_LOG"]
    assert leaks(home) == []
    with started("secret", "update", "mail", stdin=-1, stdout=-1) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(SECOND.encode())
        process.stdin.flush()
        assert f"{process.pid}" in {entry.name for entry in Path("/proc").iterdir()}
        assert leaks(home) == []
        process.stdin.close()
        assert process.stdout.read().startswith(b"sec_")
        assert process.wait(60) == 0
    Secrets.list()
    for refused in (f"{FIRST}\n", ""):
        with pytest.raises(InvalidSpecError) as raised:
            Secrets.update("mail", refused)
        assert FIRST not in str(raised.value)
    with pytest.raises(NameTakenError):
        Secrets.create("mail", FIRST)
    with Sandbox.create() as sandbox:
        assert sandbox.run("true").exit_code == 0
        sandbox.snapshot("with")
        sandbox.suspend()
        assert leaks(home) == []
        sandbox.resume()
        kill_supervisor(home)
        assert sandbox.run("true").exit_code == 0
        assert Secrets.get("mail").version == 2
        assert leaks(home) == []
    Supervisor.stop()
    assert leaks(home) == []
    assert Secrets.update("mail", metadata={"opened": "again"}).version == 3
    Secrets.delete("mail")
    assert leaks(home) == []
    assert (home / "secrets.key").stat().st_mode & 0o7777 == 0o600
    assert Home(home).log.stat().st_size > 0


def test_a_key_that_others_can_read_is_refused_with_its_remedy(home: Path) -> None:
    Secrets.create("mail", FIRST)
    (home / "secrets.key").chmod(0o644)
    Supervisor.stop()
    refused = atoll("secret", "update", "mail", stdin=SECOND.encode())
    assert refused.returncode == 125
    assert f"chmod 600 {home}/secrets.key".encode() in refused.stderr
    assert Secrets.list()[0].version == 1
    (home / "secrets.key").chmod(0o600)
    assert Secrets.update("mail", SECOND).version == 2
    (home / "secrets.key").write_text("00" * 32)
    Supervisor.stop()
    with pytest.raises(DamagedError):
        Secrets.update("mail", hosts=["a.example"])
    Secrets.delete("mail")


def test_a_keyring_that_is_not_there_is_explained(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_SECRETS_KEYRING", "on")
    refused = atoll("secret", "create", "mail", stdin=FIRST.encode())
    assert refused.returncode == 125
    assert b"the Python package keyring is not installed" in refused.stderr
    assert not (home / "secrets.key").exists()
    assert sys.modules.get("keyring") is None
