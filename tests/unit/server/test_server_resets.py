"""Connections of clients that end with a reset."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from atoll.server.gateway.resets import Resets


def test_a_client_gets_what_was_sent_and_then_a_reset() -> None:
    resets = Resets()
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pairs = []
        for _ in range(2):
            client = stack.enter_context(socket.create_connection(listener.getsockname()))
            server, peer = listener.accept()
            pairs.append((client, stack.enter_context(server), peer))
        (first, its_server, peer), (second, other_server, other_peer) = pairs
        its_server.sendall(b"data")
        resets.reset(("127.0.0.1", 1))
        resets.reset(peer)
        resets.reset(peer)
        assert first.recv(100) == b"data"
        with pytest.raises(ConnectionResetError):
            first.recv(100)
        other_server.sendall(b"untouched")
        assert second.recv(100) == b"untouched"
        its_server.close()
        resets.reset(other_peer)
        with pytest.raises(ConnectionResetError):
            second.recv(100)
    assert len(os.listdir("/proc/self/fd")) == before
