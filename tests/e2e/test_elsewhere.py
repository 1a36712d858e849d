"""The wheel for any machine in an environment of its own, as a client of a server, on what is said to be each system.

Its dependencies are those of the tests, so nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.server import serving

from atoll import Keys, Teams

ROOT = Path(__file__).resolve().parents[2]
CLIENT = '''
import asyncio, os, socket, sys, threading
from pathlib import Path
import atoll
from atoll import AsyncSandbox, Sandbox
from atoll.evals import Evaluation
from atoll.types import TerminalSize

place = Path(sys.argv[1])
TURN = """
import socket
server = socket.create_server(("", 7777))
while True:
    peer = server.accept()[0]
    data = b""
    while piece := peer.recv(99):
        data += piece
    peer.sendall(data[::-1])
    peer.close()
"""
assert "far-venv" in atoll.__file__, atoll.__file__
with Sandbox.create() as sandbox:
    assert sandbox.run("echo $((6 * 7))").stdout == "42\\n"
    assert sandbox.run("cat", stdin="in").stdout == "in"
    sandbox.files.write("note", b"a\\r\\nb")
    assert sandbox.files.read_bytes("note") == b"a\\r\\nb"
    (place / "up").mkdir()
    (place / "up/a").write_bytes(bytes(range(256)) * 5000)
    sandbox.files.upload(place / "up", "/tmp/in")
    sandbox.files.download("/tmp/in", place / "down")
    assert (place / "down/a").read_bytes() == bytes(range(256)) * 5000
    sandbox.files.download("note", place / "note")
    assert (place / "note").read_bytes() == b"a\\r\\nb"
    with sandbox.processes.pty("tty; exit 4", size=TerminalSize(rows=10, cols=40)) as terminal:
        assert b"/dev/pts/" in b"".join(terminal)
        assert terminal.wait().exit_code == 4
    sandbox.processes.pty("sleep 1000 & yes").__exit__(None, None, None)  # full of output that nobody reads
    sandbox.files.write("turn.py", TURN)
    sandbox.processes.start("python3 turn.py")
    sandbox.ports.wait(7777, timeout_s=60)
    with sandbox.ports.dial(7777) as sock:
        sock.settimeout(60)
        sock.sendall(b"abc")
        sock.shutdown(1)
        assert (sock.recv(9), sock.recv(9)) == (b"cba", b"")
    with sandbox.ports.forward(7777) as forward:
        with socket.create_connection(("127.0.0.1", forward.port), 60) as sock:
            sock.sendall(b"def")
            sock.shutdown(1)
            assert sock.recv(9) == b"fed"
    assert [thread.name for thread in threading.enumerate() if thread.name == "atoll"] == []
    if sys.platform == "win32":  # the lock of its journal is another one there
        strategies = {"right": "0", "wrong": "1"}
        task = lambda fork, code: fork.run(f"exit {code}")
        tried = Evaluation(sandbox, strategies, task, journal=place / "journal").run()
        assert tried.best().strategy == "right"
    process = sandbox.processes.start("sleep 1000")
    process.kill()
    assert process.wait().exit_code == 137

async def beside():
    async with await AsyncSandbox.create() as sandbox:
        async with sandbox.ports.forward(7777) as forward:
            assert forward.port
        assert (await sandbox.run("uname")).stdout == "Linux\\n"

asyncio.run(beside())
assert list(Sandbox.list()) == []
'''


@dataclass(frozen=True)
class Far:
    """An install of the wheel for any machine, and a server."""

    python: Path
    place: Path
    login: list[str]

    def run(self, system: str, *arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program as if on ``system``; on this machine as it is if that is linux."""
        pretended = [] if system == "linux" else [str(ROOT / "tests/pretended.py"), system]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
        return subprocess.run(
            [str(self.python), *pretended, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=self.place,
            env={**clean, "XDG_CONFIG_HOME": str(self.place / system), **environ},
        )


def make_environment(place: Path) -> Path:
    """Install the wheel for any machine without its dependencies, and return the environment's Python."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT, env={**os.environ, "ATOLL_BUILD_MACHINE": "any"}, check=True)
    [built] = place.glob("atoll-*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    environment = place / "far-venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={python}", "-q"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--no-compile", str(built)], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    # after its own packages; what makes the atoll of the tests importable there is read in no such directory
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture(scope="module")
def far(module_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    del module_home
    place = tmp_path_factory.mktemp("far")
    python = make_environment(place)
    Teams.create("far")
    (place / "key").write_text(Keys.create("far", "for a test").key)
    with serving("--tls", "self-signed", "--domain", "far.test") as server:
        options = ["--key-file", str(place / "key"), "--ca", server.variables["NODE_EXTRA_CA_CERTS"]]
        yield Far(python, place, [f"https://localhost:{server.port}", *options])


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_client_elsewhere_uses_the_sandboxes_of_a_server(far: Far, system: str) -> None:
    done = far.run(system, "-m", "atoll.cli", "login", *far.login)
    assert done.returncode == 0, done.stderr
    work = far.place / f"work-{system}"
    work.mkdir()
    done = far.run(system, "-c", CLIENT, work)
    assert done.returncode == 0, done.stderr
    done = far.run(system, "-m", "atoll.cli", "run", "sh", "-c", "echo né; echo to >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "né\n", "to\n")


def test_a_linux_machine_without_an_engine_names_the_way_to_one(far: Far) -> None:
    home = str(far.place / "home")
    done = far.run("linux", "-m", "atoll.cli", "run", "true", ATOLL_HOME=home)
    assert done.returncode == 125
    assert "this install of atoll has no engine" in done.stderr
    assert "atoll login" in done.stderr
    assert "ATOLL_URL" in done.stderr
