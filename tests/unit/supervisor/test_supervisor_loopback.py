"""Connections that the guest's agent leads on, and what a hostile one may answer."""

from __future__ import annotations

import asyncio
import socket

import pytest

from atoll.errors import AgentError
from atoll.protocol import AGENT_PORT
from atoll.supervisor.dialing.loopback import dial_loopback

LED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}"


class Guest:
    """Its agent answers what it is told to, whatever it is asked."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.ours, self.theirs = socket.socketpair()

    async def dial(self, port: int, timeout_s: float) -> socket.socket:
        assert port == AGENT_PORT
        self.ours.setblocking(False)
        for piece in self.pieces:
            self.theirs.sendall(piece)
        if self.pieces[-1:] == (b"",):
            self.theirs.shutdown(socket.SHUT_WR)
        return self.ours


def led(guest: Guest, timeout_s: float = 10.0) -> socket.socket | None:
    with guest.theirs:
        found = asyncio.run(dial_loopback(guest, 8000, timeout_s))
        if found is not None:
            asked = guest.theirs.recv(4096)
            assert asked.startswith(b"POST /atoll/loopback?port=8000 HTTP/1.1\r\n")
            assert asked.endswith(b"\r\n\r\n\n")
        return found


@pytest.mark.parametrize("pieces", [(LED,), (LED[:20], LED[20:])])
def test_the_socket_is_given_when_the_agent_says_so(pieces: tuple[bytes, ...]) -> None:
    found = led(Guest(*pieces))
    assert found is not None
    found.close()


@pytest.mark.parametrize("answer", [REFUSED, b"nonsense\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_where_nothing_listens_there_is_none(answer: bytes) -> None:
    guest = Guest(answer)
    assert led(guest) is None
    assert guest.ours.fileno() == -1


@pytest.mark.parametrize("pieces", [(LED + b"x",), (LED + LED,), (b"x" * 5000,), (LED[:-1], b""), (b"",)])
def test_what_is_no_answer_is_an_error_and_leaves_nothing_open(pieces: tuple[bytes, ...]) -> None:
    guest = Guest(*pieces)
    with pytest.raises(AgentError):
        led(guest)
    assert guest.ours.fileno() == -1


def test_an_agent_that_says_nothing_is_not_waited_for_longer_than_said() -> None:
    guest = Guest(LED[:-2])
    with pytest.raises(TimeoutError):
        led(guest, timeout_s=0.01)
    assert guest.ours.fileno() == -1
