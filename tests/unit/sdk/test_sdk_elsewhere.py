"""The SDK and the command line on a machine that has not what only Linux has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.errors import UnsupportedError
from atoll.host import binaries

PRETENDED = Path(__file__).parents[2] / "pretended.py"


def run(system: str, code: str, *arguments: str, config: Path) -> subprocess.CompletedProcess[str]:
    """Run code on a machine that is said to run another system, for a user without a server."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    return subprocess.run(
        [sys.executable, PRETENDED, system, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environ, "XDG_CONFIG_HOME": str(config)},
    )


WHOLE = """
import importlib, os, pkgutil, sys
import atoll, atoll.cli.commands, atoll.evals, atoll.mcp.install, atoll.toolkits, atoll.tools
import atoll.cli.__main__ as main
from pathlib import PureWindowsPath
from atoll.cli.commands.cp import parse
from atoll.sdk import _server
from atoll.types.given import path_text

for package in (atoll, atoll.errors, atoll.sdk, atoll.types, atoll.evals, atoll.toolkits, atoll.tools):
    for name in package.__all__:
        getattr(package, name)
for module in pkgutil.iter_modules(atoll.cli.commands.__path__):
    importlib.import_module(f"atoll.cli.commands.{module.name}")
assert main.run(["--help"]) == 0
assert [main.run(line.split()) for line in ("run true", "serve", "shell work", "run -t true")] == [125] * 4

assert path_text(PureWindowsPath("/tmp/in")) == "/tmp/in"
if sys.platform == "win32":
    assert [parse(text) for text in ("c:\\\\a", "c:/a", "a\\\\b:c")] == [None] * 3
assert parse("work:/a").path == "/a"

os.environ.pop("XDG_CONFIG_HOME")
os.environ["APPDATA"] = os.environ["HOME"] = sys.argv[1]
path = _server.store(_server.given("https://api.reef.test", "key", None))
assert _server.chosen().url == "https://api.reef.test"
print(path)
"""


@pytest.mark.parametrize(
    ("system", "shell", "login"), [("macos", "on Linux", ".config/atoll"), ("windows", "WSL", "atoll")]
)
def test_a_client_works_without_what_only_linux_has_and_says_what_it_cannot_do(
    system: str, shell: str, login: str, tmp_path: Path
) -> None:
    done = run(system, WHOLE, str(tmp_path / "user"), config=tmp_path / "config")
    assert done.returncode == 0, done.stderr
    of_run, of_serve, *of_terminals = done.stderr.splitlines()
    assert "atoll runs sandboxes on Linux" in of_run
    assert "atoll login" in of_run
    assert "ATOLL_URL" in of_run
    assert "`atoll serve` runs on Linux" in of_serve
    assert [shell in line for line in of_terminals] == [True, True]
    assert done.stdout.splitlines()[-1] == str(tmp_path / "user" / login / "login.json")


JOURNAL = """
import sys
from atoll.errors import InUseError
from atoll.evals.journal import Header, Journal, read_journal

path = sys.argv[1]
with Journal(path) as journal:
    journal.begin(Header(evaluation="e", snapshot_id="s", start_hash="h", request="r"))
    assert read_journal(path)[0].evaluation == "e"
    try:
        Journal(path)
    except InUseError:
        print("in use")
with Journal(path) as again:
    assert again.header.evaluation == "e"
"""


def test_a_journal_has_one_writer_on_windows_too(tmp_path: Path) -> None:
    done = run("windows", JOURNAL, str(tmp_path / "journal"), config=tmp_path)
    assert (done.returncode, done.stdout) == (0, "in use\n"), done.stderr


UNPACK = """
import io, os, sys, tarfile
from pathlib import Path
from atoll.errors import AgentError, FileError
from atoll.sdk._unpack import Limits, Unpacker

root, outside = map(Path, sys.argv[1:])

def unpack(*members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.mtime = kind, 1000
            info.linkname = content if kind != tarfile.REGTYPE else ""
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content.encode() if kind == tarfile.REGTYPE else b""))
    unpacker = Unpacker(root, Limits())
    try:
        unpacker.feed(file.getvalue())
        unpacker.finish()
    finally:
        unpacker.close()

FILE, DIR, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
unpack(("d", "", DIR), ("d/a", "first", FILE), ("d/b", "d/a", HARD), ("d/l", str(outside), LINK))
assert (root / "d/a").read_text() == (root / "d/b").read_text() == "first"
assert (root / "d/a").stat().st_mtime == (root / "d").stat().st_mtime == 1000
assert not os.path.lexists(root / "d/l")
unpack(("d/a", "second", FILE))
assert (root / "d/a").read_text() == "second" and (root / "d/b").read_text() == "first"
for name in ("c:x", "d/..\\\\..\\\\x", "nul", "d/COM1.txt", "d/x.", "d/x ", "a|b", "s:t", "d:/x"):
    try:
        unpack((name, "evil", FILE))
    except FileError as error:
        assert "Windows" in str(error), error
    else:
        raise AssertionError(name)
os.symlink(outside, root / "led")
for name in ("led/x", "../x", "/x"):
    try:
        unpack((name, "evil", FILE))
    except (AgentError, FileError):
        continue
    raise AssertionError(name)
unpack(("led", "mine", FILE))  # in the place of the link, not through it
assert (root / "led").read_text() == "mine"
assert os.listdir(outside) == []
"""


def test_an_archive_stays_in_its_directory_where_there_are_only_paths(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    done = run("windows", UNPACK, str(tmp_path / "in"), str(tmp_path / "out"), config=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_machine_that_runs_no_sandboxes_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ATOLL_URL", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match="on Linux") as refused:
        list(Sandbox.list())
    assert "atoll login" in str(refused.value.hint)


@pytest.mark.parametrize("machine", ["riscv64", "x86_64"])
def test_an_install_without_an_engine_says_so_and_names_what_has_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ATOLL_URL", raising=False)
    monkeypatch.setattr(binaries, "_BIN", tmp_path)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "reef", "6", "1", machine)))
    with pytest.raises(UnsupportedError, match="x86_64 and aarch64") as refused:
        Sandbox.create()
    assert machine in refused.value.message
    assert ("this machine" in str(refused.value.hint)) is (machine == "x86_64")
    assert "atoll login" in str(refused.value.hint)
    assert not (tmp_path / "home").exists()
