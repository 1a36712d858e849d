from __future__ import annotations

import pytest

from atoll.errors import AgentError
from atoll.guest import Body, GuestRequest, HttpClient, HttpHead, put_tree

GET = GuestRequest("GET", "/health")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Y: z\r\n\r\nok"


def test_a_connection_takes_one_exchange_after_the_other() -> None:
    http = HttpClient()
    for _ in range(3):
        assert http.request(GET).startswith(b"GET /health HTTP/1.1\r\n")
        assert not http.reusable
        http.receive(ANSWER)
        assert http.next_event() == HttpHead(200, {"content-length": "2", "x-y": "z"})
        assert http.next_event() == Body(b"ok")
        assert http.next_event() == Body(b"")
        assert http.reusable


def test_an_answer_may_come_byte_by_byte() -> None:
    http = HttpClient()
    http.request(GET)
    events = []
    for byte in ANSWER:
        http.receive(bytes([byte]))
        while (event := http.next_event()) is not None:
            events.append(event)
            if event == Body(b""):
                break
    assert events[0] == HttpHead(200, {"content-length": "2", "x-y": "z"})
    assert b"".join(event.data for event in events[1:] if isinstance(event, Body)) == b"ok"


def test_a_body_of_unknown_length_is_chunked_and_one_of_known_length_is_not() -> None:
    http = HttpClient()
    assert b"transfer-encoding: chunked" in http.request(put_tree("/a", None)).lower()
    assert http.data(b"abc") == b"3\r\nabc\r\n"
    assert http.end() == b"0\r\n\r\n"
    http = HttpClient()
    assert b"content-length: 3" in http.request(put_tree("/a", None), length=3).lower()
    assert http.data(b"abc") == b"abc"
    assert not http.request_done
    assert http.end() == b""
    assert http.request_done


@pytest.mark.parametrize("cut", [0, 10, len(ANSWER) - 1])
def test_a_peer_that_ends_in_the_middle_is_a_reset_connection(cut: int) -> None:
    http = HttpClient()
    http.request(GET)
    http.receive(ANSWER[:cut])
    http.receive(b"")
    with pytest.raises(ConnectionResetError):
        while http.next_event() is not None:
            pass


@pytest.mark.parametrize("rubbish", [b"o\0\0\0\1x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000])
def test_a_peer_that_speaks_no_http_is_refused(rubbish: bytes) -> None:
    http = HttpClient()
    http.request(GET)
    http.receive(rubbish)
    with pytest.raises(AgentError):
        http.next_event()


def test_bytes_after_a_closed_connection_are_refused() -> None:
    http = HttpClient()
    http.request(GET)
    http.receive(b"")
    with pytest.raises(AgentError, match="after the end of its answer"):
        http.receive(b"x")


def test_a_preliminary_answer_is_passed_over() -> None:
    http = HttpClient()
    http.request(GET)
    http.receive(b"HTTP/1.1 102 Processing\r\n\r\n" + ANSWER)
    assert http.next_event() == HttpHead(200, {"content-length": "2", "x-y": "z"})


def test_a_connection_that_the_peer_closes_after_its_answer_has_no_other() -> None:
    http = HttpClient()
    http.request(GET)
    http.receive(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    http.receive(b"")
    assert http.next_event() == HttpHead(204, {"connection": "close"})
    assert http.next_event() == Body(b"")
    with pytest.raises(ConnectionResetError, match="before an answer"):
        http.next_event()


def test_a_body_that_is_known_goes_out_with_its_length() -> None:
    sent = HttpClient().request(GuestRequest("POST", "/x", (), b"abc"))
    assert b"content-length: 3" in sent.lower()
    assert sent.endswith(b"\r\n\r\nabc")


def test_a_host_is_told_to_a_server_that_has_a_name() -> None:
    assert b"host: atoll\r\n" in HttpClient().request(GuestRequest("GET", "/")).lower()
    sent = HttpClient().request(GuestRequest("GET", "/", (("host", "api.example.com"),))).lower()
    assert b"host: api.example.com\r\n" in sent
    assert b"host: atoll" not in sent
