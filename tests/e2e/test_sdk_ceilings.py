"""Ceilings of teams over real sandboxes: a server on this host, exposed by a rule, stands for the outside."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.e2e.command_line import atoll, said
from tests.waiting import BOUND_S, until

from atoll import Hosting, Sandbox, Teams
from atoll.errors import InvalidSpecError, TeamNotFoundError
from atoll.types import HOST_NAME, Policy, Rule

HOLDS = """
import pathlib, socket, sys
with socket.create_connection(("host.atoll.internal", int(sys.argv[1]))) as connection:
    pathlib.Path("/tmp/open").touch()
    try:
        print("ended", connection.recv(1))
    except ConnectionResetError:
        print("reset")
"""


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = f"{self.command} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, *args: object) -> None:
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: connections are reset here on purpose."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a web server on this host's loopback interface."""
    server = _Server(("127.0.0.1", 0), _Echo)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def curl(sandbox: Sandbox, address: str, *options: str) -> str:
    done = sandbox.exec(["curl", "-sS", "-m", "20", *options, address])
    return done.stdout + done.stderr


def refusal(sandbox: Sandbox, address: str, *options: str) -> tuple[str, bool]:
    """The rule that refuses a request, and whether it is the ceiling's."""
    told = json.loads(curl(sandbox, address, *options))
    return told["rule"], told["ceiling"]


def test_a_ceiling_holds_while_sandboxes_run_when_they_wake_and_for_their_copies(
    module_home: Path, port: int
) -> None:
    Teams.create("reef")
    here = f"http://{HOST_NAME}:{port}"
    exposed = Policy(rules=(Policy.expose_host(port),))
    writing = Rule(action="deny", name="no writing", hosts=(HOST_NAME,), ports=(port,), methods=("POST",))
    with Sandbox.create(hosting=Hosting(team="reef"), network=exposed) as sandbox:
        assert curl(sandbox, f"{here}/a", "-d", "x") == "POST /a"
        holds = sandbox.processes.start(["python3", "-c", HOLDS, str(port)])
        until(lambda: sandbox.files.exists("/tmp/open"))
        Teams.set_ceiling("reef", Policy(rules=(writing, Policy.expose_host(port))))
        assert holds.wait(timeout_s=BOUND_S).stdout == "reset\n"
        assert curl(sandbox, f"{here}/a") == "GET /a"
        assert refusal(sandbox, f"{here}/a", "-d", "x") == ("no writing", True)
        assert sandbox.egress.test("POST", here).ceiling
        assert sandbox.egress.test("GET", here).action == "allow"
        sandbox.set_network("internet")
        assert not curl(sandbox, f"{here}/a").startswith("GET")
        sandbox.set_network(exposed)
        snapshot = sandbox.snapshot()
        with (
            sandbox.fork()[0] as fork,
            Sandbox.create(snapshot, hosting=Hosting(team="reef")) as copy,
        ):
            assert fork.info().network == copy.info().network == exposed
            for child in (fork, copy):
                assert curl(child, f"{here}/b") == "GET /b"
                assert refusal(child, f"{here}/b", "-d", "x") == ("no writing", True)
            sandbox.suspend()
            Teams.set_ceiling("reef", "none")
            for each in (sandbox, fork, copy):
                assert "Could not resolve host" in curl(each, f"{here}/c")
            fork.suspend()
            Teams.set_ceiling("reef", None)
            for each in (sandbox, fork, copy):
                assert curl(each, f"{here}/d", "-d", "x") == "POST /d"
        until(lambda: any(one.ceiling and one.method == "POST" for one in sandbox.egress.decisions()))
        assert "the team's ceiling: no rule exposes a port of this host" in "".join(sandbox.logs())


def test_a_ceiling_that_means_nothing_is_refused(module_home: Path) -> None:
    Teams.create("shoal")
    try:
        with pytest.raises(InvalidSpecError, match="cannot only observe"):
            Teams.set_ceiling("shoal", Policy(mode="observe"))
        with pytest.raises(InvalidSpecError, match="a ceiling changes and limits no requests"):
            Teams.set_ceiling("shoal", Policy(rules=(Rule(set_headers={"x-a": "1"}),)))
        with pytest.raises(TeamNotFoundError):
            Teams.set_ceiling("nobody", "none")
        assert Teams.get("shoal").ceiling is None
    finally:
        Teams.delete("shoal")


def test_the_command_line_sets_and_shows_a_ceiling(module_home: Path, tmp_path: Path) -> None:
    said("team", "create", "bay", "--running", "2")
    try:
        assert said("team", "set", "bay", "--ceiling", "web-read-only") == (
            "bay --running 2 ceiling: web-read-only"
        )
        file = tmp_path / "ceiling.toml"
        file.write_text('[[rules]]\nhosts = ["example.com"]\n')
        assert said("team", "set", "bay", "--ceiling", str(file), "--running", "3").endswith(
            "--running 3 ceiling: a policy of 1 rule"
        )
        assert "ceiling     a policy of 1 rule" in said("team", "info", "bay").splitlines()
        told = json.loads(said("team", "info", "bay", "--json"))
        assert told["ceiling"] == {"rules": [{"hosts": ["example.com"]}]}
        assert said("team", "set", "bay", "--running", "4").endswith("ceiling: a policy of 1 rule")
        file.write_text('mode = "observe"\n')
        wrong = atoll("team", "set", "bay", "--ceiling", str(file))
        assert (wrong.returncode, b"cannot only observe" in wrong.stderr) == (125, True)
        assert said("team", "set", "bay", "--ceiling", "off") == "bay --running 4"
    finally:
        said("team", "delete", "bay")
