"""The process that judges requests goes on without a supervisor, and with the next one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
from tests.waiting import until

from atoll import Sandbox, Secrets, Supervisor
from atoll.host import Home, earlier_program, start_ticks
from atoll.protocol import Hello
from atoll.types import HOST_NAME, Inject, Policy, RateLimit, Rule

# A program of the guest that asks on one connection each time that it is given a path, and writes the answer down.
ASK = """
import http.client, sys
asking = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
asking.auto_open = 0
asking.connect()
for number in range(100):
    with open("ask") as paths:
        path = paths.readline().strip()
    try:
        asking.request("GET", path)
        answer = asking.getresponse()
        text = f"{answer.status} {answer.read().decode()}"
    except Exception as error:
        text = repr(error)
    with open("answers", "w") as answers:
        answers.write(text)
"""


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"{self.path} {len(self.headers.get('Authorization', ''))}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a web server on this host's loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def edge_of(home: Path) -> int:
    found = earlier_program(Home(home), "edge")
    assert found is not None
    found.leave()
    return found.pid


def end_supervisor(number: signal.Signals) -> None:
    pid = cast(Hello, Supervisor.hello()).pid
    os.kill(pid, number)
    until(lambda: start_ticks(pid) is None)
    list(Sandbox.list())


@pytest.mark.twice
def test_a_connection_with_a_secret_and_its_limit_outlive_supervisors(module_home: Path, port: int) -> None:
    Secrets.create("mail", "a-secret-value-0815", hosts=(HOST_NAME,))
    inject = Inject(secret="mail", key="authorization", format="Bearer {}")
    limit = RateLimit(requests=4, per_s=3600)
    rule = Rule(hosts=(HOST_NAME,), ports=(port,), methods=("GET",), inject=(inject,), limit=limit)
    with Sandbox.create(network=Policy(rules=(rule,))) as sandbox:
        sandbox.files.write("ask.py", ASK)
        sandbox.run("mkfifo ask answers")
        sandbox.processes.start(["python3", "ask.py", HOST_NAME, str(port)], stream=False)

        def asked(path: str) -> str:
            return sandbox.run(f"echo {path} >ask; cat answers").stdout

        assert asked("/0") == "200 /0 26"
        edge = edge_of(module_home)
        for turn, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), 1):
            end_supervisor(number)
            assert asked(f"/{turn}") == f"200 /{turn} 26"
        assert edge_of(module_home) == edge
        assert asked("/4").startswith("429 ")
        # Neither the edge nor the supervisor knows now what was counted, but a file.
        sandbox.suspend()
        Supervisor.stop()
        assert earlier_program(Home(module_home), "edge") is None
        sandbox.resume()
        assert "429" in sandbox.run(f"curl -s -o /dev/null -w '%{{http_code}}' {HOST_NAME}:{port}/5").stdout
    Secrets.delete("mail")
