"""What goes on without a supervisor, and with the next one: the connections of guests, also of sleepers."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.e2e.test_sdk_data_wakes import chatting, heard, said
from tests.waiting import BOUND_S, until

from atoll import Sandbox, Supervisor
from atoll.host import Home, earlier_program, start_ticks
from atoll.protocol import Hello


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on this host's loopback interface stands for the outside."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(BOUND_S)
        yield made


def end_supervisor(number: signal.Signals) -> None:
    pid = cast(Hello, Supervisor.hello()).pid
    os.kill(pid, number)
    until(lambda: start_ticks(pid) is None)


def relay_of(home: Path) -> int:
    found = earlier_program(Home(home), "relay")
    assert found is not None
    found.leave()
    return found.pid


@pytest.mark.twice
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_connections_of_a_guest_outlive_supervisors(
    module_home: Path, listener: socket.socket, number: signal.Signals
) -> None:
    with chatting(listener, 2) as (sandbox, servers):
        relay = relay_of(module_home)
        for turn in range(2):
            end_supervisor(number)
            assert said(servers[0], f"alone {turn}") == f"heard alone {turn}"
            assert sandbox.run("echo here").stdout == "here\n"
            assert said(servers[1], f"again {turn}") == f"heard again {turn}"
        assert relay_of(module_home) == relay
        sandbox.set_network("none")
        for server in servers:
            with pytest.raises(ConnectionResetError):
                server.recv(1)


def test_what_comes_for_a_sleeper_without_a_supervisor_wakes_it_with_the_next_one(
    module_home: Path, listener: socket.socket
) -> None:
    with chatting(listener, 1) as (sandbox, (server,)):
        sandbox.suspend()
        end_supervisor(signal.SIGKILL)
        server.sendall(b"are you there\n")
        list(Sandbox.list())
        assert heard(server) == "heard are you there"
        # Also what comes when the next one runs already.
        sandbox.suspend()
        end_supervisor(signal.SIGKILL)
        list(Sandbox.list())
        assert said(server, "and now") == "heard and now"


def test_the_relay_ends_with_the_last_sandbox_that_runs(module_home: Path, listener: socket.socket) -> None:
    with chatting(listener, 1) as (_, (server,)):
        Supervisor.stop()
        assert earlier_program(Home(module_home), "relay") is None
        with pytest.raises(ConnectionResetError):
            server.recv(1)
