"""Asks: how soon somebody hears of a held request, and how soon it is on its way after the answer."""

from __future__ import annotations

import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from atoll import Policy, Rule, Sandbox
from atoll.types import HOST_NAME, Ask
from bench.measure import Number

ROUNDS = 60
_CLIENT = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]))
for number in range(int(sys.argv[3])):
    began = time.perf_counter()
    connection.request("POST", f"/{number}", b"100")
    connection.getresponse().read()
    print((time.perf_counter() - began) * 1000)
"""


class _Bank(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    arrived: ClassVar[list[float]] = []

    def do_POST(self) -> None:
        self.arrived.append(time.perf_counter())
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return None


class _Server(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """A client that is killed resets its connection."""


def numbers() -> list[Number]:
    """Measure."""
    server = _Server(("127.0.0.1", 0), _Bank)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        return _measured(server.server_port)
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _measured(port: int) -> list[Number]:
    said: list[float] = []

    def decide(ask: Ask) -> bool:
        said.append(time.perf_counter())
        return True

    hosts = {"hosts": (HOST_NAME,), "ports": (port,), "methods": ("POST",)}
    with Sandbox.create(network=Policy(rules=(Rule(**hosts),))) as sandbox:  # type: ignore[arg-type]
        allowed_ms = _durations(sandbox, port)
        sandbox.set_network(Policy(rules=(Rule(action="ask", **hosts),)))  # type: ignore[arg-type]
        _Bank.arrived.clear()
        with sandbox.on_ask(decide):
            asked_ms = _durations(sandbox, port)
    answers_ms = [(arrived - word) * 1000 for word, arrived in zip(said, _Bank.arrived, strict=True)]
    both_ms = statistics.median(asked_ms) - statistics.median(allowed_ms)
    answer_ms = statistics.median(answers_ms)
    return [
        Number(name="from an answer until its request arrives at the server", measured=answer_ms, promise=50),
        Number(
            name="from a held request until somebody hears of it", measured=both_ms - answer_ms, promise=100
        ),
    ]


def _durations(sandbox: Sandbox, port: int) -> list[float]:
    done = sandbox.exec(["python3", "-c", _CLIENT, HOST_NAME, str(port), str(ROUNDS)], check=True)
    return [float(line) for line in done.stdout.split()]
