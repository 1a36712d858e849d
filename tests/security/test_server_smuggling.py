"""What a client sends on one connection is one request, or none: never a second one inside the first."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Hosting, Sandbox
from tests.e2e.listening import until_listening
from tests.e2e.server import Server

BOUND_S = 60.0
PORT = 8000
LAST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
RECORDER = """
import socket, sys
listener = socket.create_server(("0.0.0.0", %d), backlog=64)
while True:
    connection, _ = listener.accept()
    connection.settimeout(60)
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
            if b"\\r\\n\\r\\n" in data and b"chunked" not in data.lower():
                break
            if data.endswith(b"0\\r\\n\\r\\n"):
                break
    except TimeoutError:
        pass
    body = data.hex().encode()
    head = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %%d\\r\\n\\r\\n"
    connection.sendall(head %% len(body) + body)
    connection.close()
"""


@pytest.fixture(scope="module")
def box(server: Server) -> Iterator[Sandbox]:
    """A sandbox whose server answers with the very bytes that it was sent."""
    del server
    with Sandbox.create(hosting=Hosting(team="default")) as made:
        made.files.write("/tmp/recorder.py", RECORDER % PORT)
        made.processes.start(["python3", "/tmp/recorder.py"])
        until_listening(made, PORT)
        yield made


def answers(server: Server, data: bytes) -> bytes:
    """All that the server says to these bytes, and to a last request that ends the connection."""
    told = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as raw:
        with contextlib.suppress(ConnectionError):  # it may close before it has read all
            raw.sendall(data + LAST)
            while piece := raw.recv(65536):
                told += piece
    return told


def head(box: Sandbox, line: str, *headers: str) -> bytes:
    named = ["Host: localhost", f"E2b-Sandbox-Id: {box.id}", f"E2b-Sandbox-Port: {PORT}", *headers]
    return "\r\n".join([line, *named, "", ""]).encode("latin-1")


def requests_inside(told: bytes) -> bytes:
    """What the server inside was sent, from its answer."""
    _, _, rest = told.partition(b"\r\n\r\n")
    body, _, _ = rest.partition(b"HTTP/1.1 ")
    return bytes.fromhex(body.decode()) if told.startswith(b"HTTP/1.1 200") else b""


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 4", "Content-Length: 44"),
        ("Content-Length: 4, 44",),
        ("Content-Length: +4",),
        ("Content-Length: 0x4",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: identity", "Content-Length: 4"),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Transfer-Encoding:\x0bchunked",),
        ("X: y\r\n folded: z",),
        ("X\x00: y",),
    ],
)
def test_a_request_whose_length_can_be_read_in_two_ways_is_refused(
    server: Server, box: Sandbox, headers: tuple[str, ...]
) -> None:
    second = head(box, "GET /second HTTP/1.1")
    told = answers(server, head(box, "POST /first HTTP/1.1", *headers) + b"0\r\n\r\n" + second)
    assert told.startswith(b"HTTP/1.1 400 ")
    assert told.count(b"HTTP/1.1 ") == 1


def test_of_two_lengths_the_chunks_hold_and_the_connection_ends(server: Server, box: Sandbox) -> None:
    both = head(box, "POST /first HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked")
    told = answers(server, both + b"0\r\n\r\n" + head(box, "GET /second HTTP/1.1"))
    assert told.count(b"HTTP/1.1 ") == 1
    seen = requests_inside(told).lower()
    assert b"/second" not in seen
    assert b"content-length" not in seen


def test_after_a_small_body_the_connection_takes_another_request(server: Server, box: Sandbox) -> None:
    told = answers(server, head(box, "POST /first HTTP/1.1", "Content-Length: 2") + b"ab")
    assert told.count(b"HTTP/1.1 200 ") == 2


def test_a_body_that_looks_like_a_request_stays_a_body(server: Server, box: Sandbox) -> None:
    inner = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n"
    told = answers(
        server,
        head(box, "POST / HTTP/1.1", "Transfer-Encoding: chunked")
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner),
    )
    seen = requests_inside(told)
    assert seen.endswith(b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner))
    assert seen.lower().count(b"transfer-encoding: chunked") == 1


@pytest.mark.parametrize(
    "line",
    [
        "GET /a\x00b HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET / HTTP/3.7",
        "G\x01T / HTTP/1.1",
        "CONNECT x:1 HTTP/1.1",
    ],
)
def test_a_line_that_is_none_goes_nowhere(server: Server, box: Sandbox, line: str) -> None:
    told = answers(server, head(box, line))
    assert not told.startswith(b"HTTP/1.1 2")


def test_two_hosts_are_refused(server: Server, box: Sandbox) -> None:
    assert answers(server, head(box, "GET / HTTP/1.1", "Host: other")).startswith(b"HTTP/1.1 400 ")


def test_connection_headers_cannot_remove_what_the_gateway_says(server: Server, box: Sandbox) -> None:
    listed = "Connection: host, x-forwarded-for, content-length, keep-alive"
    told = answers(server, head(box, "POST / HTTP/1.1", listed, "Content-Length: 2") + b"ab")
    seen = requests_inside(told).lower()
    assert b"\r\nhost: localhost\r\n" in seen
    assert b"\r\nx-forwarded-for: 127.0.0.1\r\n" in seen
    assert b"\r\ncontent-length: 2\r\n" in seen


def test_a_head_that_is_too_long_is_refused(server: Server, box: Sandbox) -> None:
    told = answers(server, head(box, "GET / HTTP/1.1", "X: " + "a" * 100_000))
    # a client that goes on sending may not get to hear why
    assert told == b"" or told.startswith(b"HTTP/1.1 431 ")


def test_nothing_secret_is_in_the_logs(server: Server, box: Sandbox, module_home: Path) -> None:
    secret = "s3cr3t" * 5
    answers(
        server,
        head(
            box, f"GET /files?signature={secret} HTTP/1.1", f"X-Access-Token: {secret}", "Connection: close"
        ),
    )
    answers(
        server, head(box, "GET /x HTTP/1.1", f"E2b-Traffic-Access-Token: {secret}", f"X-API-Key: {secret}")
    )
    log = (module_home / "server" / "access.log").read_text() + server.log.read_text().partition("\n")[2]
    assert secret not in log
    assert box.id in log
