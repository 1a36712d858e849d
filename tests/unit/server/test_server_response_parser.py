"""Answers of guests that mean no good."""

from __future__ import annotations

import pytest

from atoll.server.gateway.response import GuestError, ResponseParser

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("more", [b"H", b"HTTP/1.1 200 OK\r\nX-Par", OK, b"x"])
@pytest.mark.parametrize("answer", [OK, CHUNKED + b"2\r\nhi\r\n0\r\n\r\n"])
def test_a_connection_with_bytes_after_the_answer_takes_no_other_request(answer: bytes, more: bytes) -> None:
    for pieces in ([answer + more], [answer, more], [answer[:-1], answer[-1:] + more]):
        reply = ResponseParser(bodiless=False)
        try:
            for piece in pieces:
                reply.feed(piece)
        except GuestError:
            continue  # its connection is not kept
        assert reply.take() == b"hi"
        assert reply.complete and not reply.reusable


@pytest.mark.parametrize("begin", [b"2;a=", b"2\r\nhi\r\n0\r\n"])
@pytest.mark.parametrize("more", [b"a" * 65536, b"a: b\r\n" * 10000])
def test_an_answer_of_framing_without_end_is_none(begin: bytes, more: bytes) -> None:
    reply = ResponseParser(bodiless=False)
    with pytest.raises(GuestError):
        for piece in [CHUNKED + begin, *[more] * 64]:
            reply.feed(piece)
            reply.take()


def test_small_chunks_are_an_answer_however_many() -> None:
    reply = ResponseParser(bodiless=False)
    reply.feed(CHUNKED)
    for _ in range(1000):
        reply.feed(b"1;x=" + b"y" * 1000 + b"\r\na\r\n")
        assert reply.take() == b"a"
    reply.feed(b"0\r\n\r\n")
    assert reply.complete and reply.reusable
