"""`atoll mcp`: from its start to the answer that a client waits for first, held against what its own SDK takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from bench.measure import Number, median_ms

ROUNDS = 7
PROMISE_MS = 300.0
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


def numbers() -> list[Number]:
    """Measure. Nothing of a sandbox is started: the server makes one when a tool needs it."""
    return [
        Number(
            name="start of atoll mcp to the answer of initialize",
            measured=median_ms(lambda: greet([sys.executable, "-P", "-m", "atoll.mcp"]), ROUNDS),
            promise=PROMISE_MS,
            reference_name="import of the official SDK",
            reference=median_ms(import_alone, ROUNDS),
        )
    ]


def greet(argv: Sequence[str]) -> None:
    """Start the server, say hello, wait for the answer, and end it."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(HELLO).encode() + b"\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        server.kill()
    if b'"serverInfo"' not in answer:
        raise SystemExit(f"bench: atoll mcp said {answer!r}")


def import_alone() -> None:
    """Import what the server is built on, and nothing of atoll."""
    subprocess.run([sys.executable, "-P", "-c", "import mcp.server.mcpserver"], check=True)
