"""The smallest server of the Model Context Protocol, by hand: on standard streams, or over HTTP on a port.

It runs inside a sandbox. Its one tool says the host's name; ``leave`` ends it.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
from typing import Any

VERSION = "2025-06-18"


def result_of(asked: dict[str, Any]) -> dict[str, Any] | None:
    """What is answered to a request; None refuses it."""
    if asked["method"] == "initialize":
        capabilities: dict[str, Any] = {"tools": {}}
        return {
            "protocolVersion": VERSION,
            "capabilities": capabilities,
            "serverInfo": {"name": "x", "version": "1"},
        }
    if asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": name, "inputSchema": schema} for name in ("where", "leave", "long")]}
    if asked["method"] == "tools/call":
        if asked["params"]["name"] == "leave":
            print("last words", file=sys.stderr, flush=True)
            os._exit(7)
        text = "é" * 300_000 if asked["params"]["name"] == "long" else socket.gethostname()
        return {"content": [{"type": "text", "text": text}]}
    return None


def answer_to(line: str | bytes) -> str | None:
    """The answer to a message as JSON; None for one that wants none."""
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        return None
    result = result_of(asked)
    outcome = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome})


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a POST with JSON. After the first, each must name the session and the agreed version."""

    def do_POST(self) -> None:
        line = self.rfile.read(int(self.headers["content-length"]))
        first = json.loads(line).get("method") == "initialize"
        known = (self.headers.get("mcp-session-id"), self.headers.get("mcp-protocol-version"))
        if self.path != "/mcp" or not (first or known == ("s1", VERSION)):
            self.send_error(400)
            return
        body = (answer_to(line) or "").encode()
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("mcp-session-id", "s1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if len(sys.argv) > 1:
    http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
print("started", file=sys.stderr, flush=True)
for line in sys.stdin:
    answer = answer_to(line)
    if answer is not None:
        print(answer, flush=True)
