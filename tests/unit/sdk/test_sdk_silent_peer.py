"""What is done while a peer says nothing."""

from __future__ import annotations

import socket

import pytest

from atoll.errors import AtollError, DeadlineError
from atoll.guest import GuestRequest
from atoll.sdk._deadline import Deadline
from atoll.sdk._io_sync import Stream
from atoll.sdk._sync.http import Pool

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


def explain(error: OSError) -> AtollError:
    return DeadlineError(str(error))


class Peer:
    """It answers when its caller has looked after it ``looks`` times."""

    def __init__(self, looks: int) -> None:
        self.near, self.far = socket.socketpair()
        self.looks = looks
        self.pool = Pool(self.open, explain, idle_s=1, on_silence=self.look, look_s=0.01)

    def open(self, _: float | None) -> Stream:
        return Stream(self.near)

    def look(self) -> None:
        self.looks -= 1
        if self.looks == 0:
            self.far.sendall(ANSWER)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()
        self.far.close()
        self.near.close()


def test_a_peer_that_says_nothing_is_looked_after_until_it_answers() -> None:
    with Peer(looks=3) as peer:
        answer = peer.pool.ask(GuestRequest("GET", "/"), Deadline(None, silence_s=60))
        assert answer.read_all(10) == b"hi"
        assert peer.looks == 0


def test_looking_makes_no_wait_longer() -> None:
    with Peer(looks=1000) as peer, pytest.raises(DeadlineError):
        peer.pool.ask(GuestRequest("GET", "/"), Deadline(None, silence_s=0.1))
    assert 980 <= peer.looks < 1000


def test_a_wait_that_is_short_is_not_looked_after() -> None:
    with Peer(looks=1000) as peer, pytest.raises(DeadlineError):
        peer.pool.ask(GuestRequest("GET", "/"), Deadline(0.005))
    assert peer.looks == 1000
