"""Clients that take their time are let go, and hold nothing meanwhile."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Hosting, Keys, Sandbox
from atoll.errors import DeniedError
from atoll.server.tokens import Tokens, read_secret
from tests.e2e.server import Server, serving

BOUND_S = 60.0


@pytest.fixture(scope="module")
def impatient(module_home: Path) -> Iterator[Server]:
    del module_home
    with serving("--head-timeout", "4", "--body-timeout", "1") as running:
        yield running


def all_of(raw: socket.socket) -> bytes:
    told = b""
    while piece := raw.recv(65536):
        told += piece
    return told


def head_of(raw: socket.socket) -> bytes:
    told = b""
    while b"\r\n\r\n" not in told:
        piece = raw.recv(65536)
        assert piece, told
        told += piece
    return told


def test_a_head_that_does_not_come_ends_the_connection(impatient: Server) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=BOUND_S) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHos")
        assert b"200" not in all_of(raw)


def test_a_connection_that_asks_no_more_ends(impatient: Server) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=BOUND_S) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all_of(raw).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "framing", ["Content-Length: 10", "Content-Length: 100000", "Transfer-Encoding: chunked"]
)
def test_a_body_that_does_not_come_is_not_waited_for(
    impatient: Server, framing: str, module_home: Path
) -> None:
    with Sandbox.create(hosting=Hosting(team="default")) as box:
        token = Tokens(read_secret(module_home / "server")).access(box.id)
        head = (
            f"POST /files?path=/tmp/x HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {box.id}\r\n"
            f"E2b-Sandbox-Port: 49983\r\nX-Access-Token: {token}\r\n{framing}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", impatient.port), timeout=BOUND_S) as raw:
            raw.sendall(head.encode())
            told = head_of(raw)
            assert told.startswith(b"HTTP/1.1 408 ")
            assert b"\r\nconnection: close\r\n" in told


def test_a_body_for_the_api_that_does_not_come_is_not_waited_for(impatient: Server) -> None:
    head = f"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {impatient.key}\r\nContent-Length: 10\r\n\r\n"
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=BOUND_S) as raw:
        raw.sendall(head.encode())
        assert head_of(raw).startswith(b"HTTP/1.1 408 ")


def test_hundreds_of_silent_connections_keep_nobody_out(impatient: Server) -> None:
    silent = [socket.create_connection(("127.0.0.1", impatient.port)) for _ in range(300)]
    try:
        with socket.create_connection(("127.0.0.1", impatient.port), timeout=BOUND_S) as raw:
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert all_of(raw).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_does_not_end_keeps_the_server_from_nothing(module_home: Path) -> None:
    del module_home
    with serving() as running, contextlib.ExitStack() as stack:
        raw = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=BOUND_S))
        asked = f"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {running.key}\r\n"
        raw.sendall(f"{asked}Expect: 100-continue\r\nContent-Length: 100\r\n\r\n".encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 100 ")  # by now it is being answered
        running.process.terminate()
        assert running.process.wait(BOUND_S) == 0
    with pytest.raises(DeniedError):
        Keys.check(running.key)
