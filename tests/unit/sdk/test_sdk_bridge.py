"""Connections to a server as sockets of this process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from unittest.mock import patch

import pytest

from atoll.sdk import _hangup
from atoll.sdk._bridge import Bridge
from atoll.sdk._server import Server

MANY_OPEN = """
import atexit, socket
from atoll.sdk._bridge import Bridge

atexit.register(lambda: print(len(Bridge.of_process()._tasks)))  # registered before the bridge, called after it
from atoll.sdk._server import Server

listener = socket.create_server(("127.0.0.1", 0))
server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", "key")
held = [Bridge.of_process().connect(server, 60) for _ in range(40)]
"""


def test_a_process_ends_without_a_word_while_connections_are_open() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_OPEN], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


CONNECTING = """
import asyncio, atexit, contextlib, socket, threading, time
from atoll.sdk import _bridge
from atoll.sdk._server import Server

def last():  # registered before the bridge, called after it
    time.sleep(0.5)
    try:
        bridge.connect(server, 60)
    except ConnectionResetError as error:
        print(error)

async def slow():
    begun.set()
    await asyncio.sleep(0.2)
    return await pair()

def connect():
    with contextlib.suppress(ConnectionResetError):
        bridge.connect(server, 60)

atexit.register(last)
pair, _bridge._pair = _bridge._pair, slow
listener = socket.create_server(("127.0.0.1", 0))
server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", "key")
bridge, begun = _bridge.Bridge.of_process(), threading.Event()
threading.Thread(target=connect, daemon=True).start()
begun.wait(60)
"""


def test_a_process_ends_without_a_word_while_a_thread_connects() -> None:
    done = subprocess.run([sys.executable, "-c", CONNECTING], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "this process ends\n", "")


async def never() -> None:
    await asyncio.sleep(3600)


def test_what_is_given_up_in_the_middle_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", "key")
        listener.settimeout(60)
        with patch("atoll.sdk._bridge._pair", never), pytest.raises(TimeoutError, match="did not answer"):
            Bridge.of_process().connect(server, 0.5)
        with listener.accept()[0] as accepted:
            accepted.settimeout(60)
            assert accepted.recv(1) == b""
        with pytest.raises(TimeoutError, match="did not answer"):
            Bridge.of_process().dial(server, "one", 80, 0.5)
        with listener.accept()[0] as accepted:
            accepted.settimeout(60)
            while accepted.recv(4096):
                pass


def test_an_end_is_told_from_the_end_of_one_direction() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        assert not _hangup.is_closed(here)
        there.shutdown(socket.SHUT_WR)
        assert not _hangup.is_closed(here)
        there.close()
        assert _hangup.is_closed(here)


def test_an_end_is_found_behind_what_was_not_read() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert _hangup.rest(here) == (b"", False)
        there.sendall(b"abc" * 10_000)
        assert _hangup.rest(here) == (b"abc" * 10_000, False)
        there.sendall(b"last")
        there.close()
        assert _hangup.rest(here) == (b"last", True)
