"""Suspended sandboxes that data wakes: on the connections that programs inside have opened, and for nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.waiting import BOUND_S, until

from atoll import Lifecycle, Sandbox
from atoll.types import HOST_NAME, Policy, SandboxInfo

# Like an agent in a chat: it connects to servers, and answers each line.
CHAT = f"""
import socket, sys, threading
def chat(connection):
    for line in connection.makefile("rb"):
        connection.sendall(b"heard " + line)
for _ in range(int(sys.argv[2])):
    connection = socket.create_connection(("{HOST_NAME}", int(sys.argv[1])))
    threading.Thread(target=chat, args=(connection,)).start()
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on this host's loopback interface stands for the outside."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(BOUND_S)
        yield made


@contextmanager
def chatting(
    listener: socket.socket, count: int, **lifecycle: float
) -> Iterator[tuple[Sandbox, list[socket.socket]]]:
    """A sandbox that data wakes, and the servers' ends of its connections."""
    port = listener.getsockname()[1]
    with ExitStack() as stack:
        sandbox = stack.enter_context(
            Sandbox.create(
                network=Policy(rules=(Policy.expose_host(port),)),
                lifecycle=Lifecycle(wake_on_data=True, **lifecycle),  # type: ignore[arg-type]
            )
        )
        sandbox.keep_awake(600)
        sandbox.files.write("chat.py", CHAT)
        sandbox.processes.start(["python3", "chat.py", str(port), str(count)], stream=False)
        servers = [stack.enter_context(listener.accept()[0]) for _ in range(count)]
        for server in servers:
            server.settimeout(BOUND_S)
            assert said(server, "hello") == "heard hello"
        sandbox.keep_awake(0)
        yield sandbox, servers


def said(server: socket.socket, line: str) -> str:
    """Say something to the guest, and return its answer."""
    server.sendall(f"{line}\n".encode())
    return heard(server)


def heard(server: socket.socket) -> str:
    answer = b""
    while not answer.endswith(b"\n"):
        answer += server.recv(100)
    return answer.decode().strip()


def data_came(sandbox: Sandbox) -> int:
    """How often data has woken it."""
    return "".join(sandbox.logs()).count("data came from")


def asleep_since(sandbox: Sandbox, woke_at: float) -> SandboxInfo:
    """What is known of it when it sleeps after a later wake: it answers before its wake is stored."""

    def sleeps() -> bool:
        told = sandbox.info()
        return told.state == "suspended" and told.started_at > woke_at

    until(sleeps)
    return sandbox.info()


def test_what_servers_say_wakes_it_and_is_handled_without_any_use(
    module_home: Path, listener: socket.socket
) -> None:
    with chatting(listener, 4) as (sandbox, servers):
        for turn, server in enumerate(servers, 1):
            sandbox.suspend()
            assert said(server, f"are you there {turn}") == f"heard are you there {turn}"
            until(lambda: sandbox.info().state == "running")  # it answers before that is stored
            assert data_came(sandbox) == turn
        # whenever it comes: while it falls asleep, it is not forgotten
        for turn in range(3):
            speaking = threading.Timer(0.03 * turn, servers[0].sendall, (b"now\n",))
            speaking.start()
            sandbox.suspend()
            assert heard(servers[0]) == "heard now"
            speaking.join()


def test_keepalives_and_ends_wake_nobody(module_home: Path, listener: socket.socket) -> None:
    with chatting(listener, 4) as (sandbox, servers):
        for server in servers:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sandbox.suspend()
        servers[0].close()
        servers[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        servers[1].close()
        time.sleep(3)
        assert sandbox.info().state == "suspended"
        assert data_came(sandbox) == 0
        assert said(servers[3], "still here") == "heard still here"
        assert data_came(sandbox) == 1


def test_one_that_sleeps_when_it_is_idle_sleeps_again_and_may_wait_for_an_answer(
    module_home: Path, listener: socket.socket
) -> None:
    with chatting(listener, 1, idle_suspend_s=1) as (sandbox, (server,)):
        woke_at = 0.0
        for turn in range(2):
            # what the guest said last is a question, for all that anybody knows
            asleep = asleep_since(sandbox, woke_at)
            assert asleep.sleep_cause == "idle"
            woke_at = asleep.started_at
            assert said(server, f"turn {turn}") == f"heard turn {turn}"
        assert data_came(sandbox) == 2


def test_a_paused_one_is_thawed(module_home: Path, listener: socket.socket) -> None:
    with chatting(listener, 1, idle_pause_s=1) as (sandbox, (server,)):
        until(lambda: sandbox.info().state == "paused")
        assert said(server, "thaw") == "heard thaw"
