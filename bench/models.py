"""The model gateway: what it adds to a request and to a stream, over a connection straight to the provider."""

from __future__ import annotations

import json
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from atoll import Hosting, Policy, Rule, Sandbox
from atoll.sdk import Models
from atoll.types import HOST_NAME, ModelAccess, ModelPrice, ModelProvider, ModelSetup
from bench.measure import Number

ROUNDS = 100
STREAMS = 5
_EVENTS = 300
_EVENT_S = 0.002
# Asks each address in turn on a connection that stays, so that both have the same moments of the machine.
_CLIENT = """
import http.client, json, sys, time
host, port, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
stream = len(sys.argv) > 4
places = [(host, port, "/v1/chat/completions"), ("models.atoll.internal", 80, "/openai/v1/chat/completions")]
connections = [http.client.HTTPConnection(*place[:2]) for place in places]
body = json.dumps({"model": "small", "max_tokens": 2000, "stream": stream,
                   "messages": [{"role": "user", "content": "x" * 2000}]})
for number in range(rounds + 3):
    times = []
    for connection, place in zip(connections, places):
        began = time.perf_counter()
        connection.request("POST", place[2], body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read(1)
        if stream:
            answer.read()
        times.append((time.perf_counter() - began) * 1000)
        answer.read()
        assert answer.status == 200, answer.status
    if number >= 3:
        print(*times)
"""
_USAGE = {"prompt_tokens": 500, "completion_tokens": 5, "total_tokens": 505}


class _Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else the second write of an answer waits for the client's delayed acknowledgement.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["stream"]:
            self._stream()
            return
        answer = {"choices": [{"message": {"content": "Hello"}}], "usage": _USAGE}
        self._begin("application/json", ("Content-Length", str(len(json.dumps(answer)))))
        self.wfile.write(json.dumps(answer).encode())

    def _stream(self) -> None:
        self._begin("text/event-stream", ("Transfer-Encoding", "chunked"))
        event = {"choices": [{"delta": {"content": "word "}}]}
        for _ in range(_EVENTS):
            self._event(json.dumps(event))
            time.sleep(_EVENT_S)
        self._event(json.dumps({"choices": [], "usage": _USAGE}))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, kind: str, length: tuple[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header(*length)
        self.end_headers()

    def _event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *args: object) -> None:
        return None


class _Server(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """A client that is killed resets its connection."""


def numbers() -> list[Number]:
    """Measure."""
    server = _Server(("127.0.0.1", 0), _Provider)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    before = Models.get()
    try:
        return _measured(server.server_port)
    finally:
        Models.set(before)
        server.shutdown()
        serving.join()
        server.server_close()


def _measured(port: int) -> list[Number]:
    provider = ModelProvider(kind="openai", url=f"http://127.0.0.1:{port}/v1")
    prices = {"bench/small": ModelPrice(input=0.25, output=2.0)}
    Models.set(ModelSetup(providers={"bench": provider}, prices=prices))
    straight = Policy(rules=(Rule(hosts=(HOST_NAME,), ports=(port,)),))
    access = ModelAccess(usd=50.0, per="total")
    with Sandbox.create(network=straight, hosting=Hosting(models=access)) as sandbox:
        direct_ms, through_ms = _durations(sandbox, port, ROUNDS)
        stream_ms, stream_through_ms = _durations(sandbox, port, STREAMS, "stream")
    return [
        Number(
            name="the model gateway adds to the first byte of an answer",
            measured=through_ms - direct_ms,
            promise=0.4,
        ),
        Number(
            name=f"a stream of {_EVENTS} events through the model gateway",
            measured=stream_through_ms,
            reference_name="straight",
            reference=stream_ms,
            most_ratio=1.03,
        ),
    ]


def _durations(sandbox: Sandbox, port: int, rounds: int, *stream: str) -> tuple[float, float]:
    """The medians straight to the provider and through the gateway, in milliseconds."""
    command = ["python3", "-c", _CLIENT, HOST_NAME, str(port), str(rounds), *stream]
    lines = sandbox.exec(command, check=True, timeout_s=300).stdout.splitlines()
    both = [tuple(map(float, line.split())) for line in lines]
    direct, through = zip(*both, strict=True)
    return statistics.median(direct), statistics.median(through)
