from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.counter import BOUND_S, count, start_counter

from atoll import AtollError, Sandbox
from atoll.errors import DeadlineError, NotFoundError


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        yield sandbox


def test_a_dialled_port_is_a_socket_to_the_program_inside(sandbox: Sandbox) -> None:
    assert count(sandbox) + 1 == count(sandbox)


def test_a_port_where_nobody_listens_is_an_error_and_no_hang(sandbox: Sandbox) -> None:
    with pytest.raises(AtollError):
        sandbox.ports.dial(7999).close()
    with pytest.raises(ValueError):
        sandbox.ports.dial(70000)


LOCAL = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
listener = socket.create_server((address, port), family=family)
while True:
    connection = listener.accept()[0]
    connection.sendall(b"first me")
    told = b""
    while data := connection.recv(1 << 20):
        told += data
    connection.sendall(told[::-1])
    connection.close()
"""


def test_waiting_for_a_port_where_nobody_ever_listens_ends(sandbox: Sandbox) -> None:
    with pytest.raises(DeadlineError, match="port 7999 within"):
        sandbox.ports.wait(7999, timeout_s=0.3)


@pytest.mark.parametrize(("address", "port"), [("127.0.0.1", 7001), ("::1", 7002)])
def test_what_listens_for_its_own_machine_only_is_reached_too(
    sandbox: Sandbox, address: str, port: int
) -> None:
    sandbox.files.write("local.py", LOCAL)
    server = sandbox.processes.start(["python3", "local.py", address, str(port)])
    sandbox.ports.wait(port, timeout_s=BOUND_S)
    sent = os.urandom(3_000_000)
    for _ in range(2):
        with sandbox.ports.dial(port) as connection, connection.makefile("rb") as answers:
            connection.settimeout(BOUND_S)
            assert answers.read(8) == b"first me"
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert answers.read() == sent[::-1]
    server.kill()
    server.wait()
    with pytest.raises(NotFoundError, match="nothing listens on port"):
        sandbox.ports.dial(port).close()


def test_a_forwarded_port_serves_ordinary_clients(sandbox: Sandbox) -> None:
    sandbox.files.write("site/index.html", "hello from inside")
    server = sandbox.processes.start(["python3", "-m", "http.server", "8000", "--directory", "site"])
    sandbox.ports.wait(8000, timeout_s=BOUND_S)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with sandbox.ports.forward(8000) as forward:
        for _ in range(3):
            with opener.open(f"{forward.url}/index.html", timeout=BOUND_S) as answer:
                assert answer.read() == b"hello from inside"
        port = forward.port
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
    server.kill()
