"""A guest that answers the gateway as it likes hurts nobody but those who asked it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import httpx
import pytest

from atoll import Hosting, Sandbox
from tests.e2e.listening import until_listening
from tests.e2e.server import Server

BOUND_S = 60.0
PORT = 8000
SOCKET = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
# Sends without end, and nothing that a client would get to see.
FLOODER = """
import base64, hashlib, socket, threading
CHUNKED = b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nhi\\r\\n"
OPEN = b"HTTP/1.1 101 S\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: %%b\\r\\n\\r\\n"

def flood(connection):
    asked = b""
    while b"\\r\\n\\r\\n" not in asked:
        asked += connection.recv(65536)
    with connection:
        if asked.startswith(b"GET /extension"):
            connection.sendall(CHUNKED + b"2;")
            piece = b"a" * 65536
        elif asked.startswith(b"GET /trailer"):
            connection.sendall(CHUNKED + b"0\\r\\n")
            piece = b"a: b\\r\\n" * 10000
        else:
            key = next(line[19:] for line in asked.split(b"\\r\\n") if line.lower().startswith(b"sec-websocket-key"))
            told = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            connection.sendall(OPEN %% base64.b64encode(told) + b"\\x02\\x00")
            piece = b"\\x00\\x00" * 30000
        while True:
            connection.sendall(piece)

listener = socket.create_server(("0.0.0.0", %d), backlog=64)
while True:
    threading.Thread(target=flood, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def box(server: Server) -> Iterator[Sandbox]:
    del server
    with Sandbox.create(hosting=Hosting(team="default")) as made:
        made.files.write("/tmp/flooder.py", FLOODER % PORT)
        made.processes.start(["python3", "/tmp/flooder.py"])
        until_listening(made, PORT)
        yield made


@contextlib.contextmanager
def asking(server: Server, box: Sandbox, path: str, *headers: str) -> Iterator[socket.socket]:
    named = [f"Host: {PORT}-{box.id}.localhost", *headers]
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as raw:
        raw.sendall("\r\n".join([f"GET {path} HTTP/1.1", *named, "", ""]).encode())
        yield raw


def test_frames_with_nothing_in_them_keep_no_other_client_waiting(server: Server, box: Sandbox) -> None:
    with asking(server, box, "/socket", *SOCKET) as raw:
        assert raw.recv(65536).startswith(b"HTTP/1.1 101 ")
        for _ in range(3):
            assert httpx.get(f"{server.url}/health", timeout=BOUND_S).status_code == 200


@pytest.mark.parametrize("path", ["/extension", "/trailer"])
def test_an_answer_that_is_framing_without_end_is_broken_off(server: Server, box: Sandbox, path: str) -> None:
    told = b""
    with asking(server, box, path) as raw, contextlib.suppress(ConnectionError):
        while piece := raw.recv(65536):
            told += piece
    assert told.endswith(b"2\r\nhi\r\n")
