"""Asks and alerts: how soon somebody hears of a request, and how soon it is on its way after the answer."""

from __future__ import annotations

import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from atoll import Policy, Rule, Sandbox, Secrets
from atoll.sdk import Alerts
from atoll.types import HOST_NAME, Alert, Ask, Inject
from bench.measure import Number

ROUNDS = 60
# Fewer than the alerts of one rule in a minute.
_ALERTS = 5
_ALERT_BOUND_S = 10.0
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
        return [*_measured(server.server_port), _alerted(server.server_port)]
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


def _alerted(port: int) -> Number:
    """Each sandbox sends a secret for the first time."""
    Secrets.create("bench-alerts", "a-token-for-the-bench")
    rule = Rule(hosts=(HOST_NAME,), ports=(port,), inject=(Inject(secret="bench-alerts", format="{}"),))
    heard: dict[str | None, float] = {}
    told = threading.Condition()

    def handle(alert: Alert) -> None:
        if alert.rule == "secret":
            with told:
                heard[alert.sandbox_id] = time.perf_counter()
                told.notify()

    durations_ms = []
    try:
        with Alerts.on_alert(handle):
            for _ in range(_ALERTS):
                with Sandbox.create(network=Policy(rules=(rule,))) as sandbox:
                    _Bank.arrived.clear()
                    sandbox.exec(["python3", "-c", _CLIENT, HOST_NAME, str(port), "1"], check=True)
                    with told:
                        told.wait_for(lambda one=sandbox.id: one in heard, _ALERT_BOUND_S)  # type: ignore[misc]
                    durations_ms.append((heard[sandbox.id] - _Bank.arrived[0]) * 1000)
    finally:
        Secrets.delete("bench-alerts")
    return Number(
        name="from an act until its alert is told", measured=statistics.median(durations_ms), promise=1000
    )


def _durations(sandbox: Sandbox, port: int) -> list[float]:
    done = sandbox.exec(["python3", "-c", _CLIENT, HOST_NAME, str(port), str(ROUNDS)], check=True)
    return [float(line) for line in done.stdout.split()]
