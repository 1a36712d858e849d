"""What is said to upstream proxies, and that no answer of theirs does harm."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.network.handshake import LONGEST_HEAD_BYTES, Exactly, ProxyError, Send, handshake
from atoll.policy import ProxyAddress

FUZZ = settings(
    deadline=None, max_examples=300, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
HTTP = ProxyAddress("http", "proxy.example", 3128)
SOCKS = ProxyAddress("socks5", "proxy.example", 1080)
SOCKS_ANN = ProxyAddress("socks5", "proxy.example", 1080, "ann", "s3cr3t")
GREETED, LOGGED_IN, CONNECTED = b"\x05\x00", b"\x05\x02\x01\x00", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"


class Hungry(Exception):
    """The handshake wants more than the proxy says."""


def shake(
    proxy: ProxyAddress, answers: bytes, host: str = "a.example", port: int = 443
) -> tuple[bytes, bytes]:
    """What is sent, and what is left of the answers. The proxy says everything at once."""
    steps, sent, taken = handshake(proxy, host, port), b"", b""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Send):
                sent += step.data
                step = next(steps)
                continue
            if isinstance(step, Exactly):
                count = step.count
            else:
                at = answers.find(step.end)
                if at < 0 and len(answers) >= step.most:
                    raise ProxyError("its answer is too long")
                count = at + len(step.end) if at >= 0 else len(answers) + 1
            if len(answers) < count:
                raise Hungry
            taken, answers = answers[:count], answers[count:]
            step = steps.send(taken)
    except StopIteration:
        return sent, answers


def test_connect_gives_the_name_and_leaves_what_the_server_says_first() -> None:
    sent, left = shake(HTTP, b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n220 ready")
    assert sent == b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"
    assert left == b"220 ready"


def test_connect_logs_in_and_gives_addresses_in_their_form() -> None:
    proxy = ProxyAddress("http", "proxy.example", 3128, "ann", "pü:")
    sent, _ = shake(proxy, b"HTTP/1.0 204 \r\n\r\n", "2001:db8::1", 80)
    assert sent == (
        b"CONNECT [2001:db8::1]:80 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n"
        b"Proxy-Authorization: Basic YW5uOnDDvDo=\r\n\r\n"
    )


def test_connect_waits_past_interim_answers() -> None:
    _, left = shake(
        HTTP, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nA: b\r\n\r\nHTTP/1.1 200\r\n\r\nhello"
    )
    assert left == b"hello"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 407 Who are you\r\n\r\n", "user and password"),
        (b"HTTP/1.1 403 <script>\r\n\r\n", "^it answers 403$"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://evil\r\n\r\n", "^it answers 302$"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "^it answers 101$"),
        (b"HTTP/2 200 OK\r\n\r\n", "does not answer as"),
        (b"HTTP/1.1 0200 OK\r\n\r\n", "does not answer as"),
        (b"HTTP/1.1 200 OK\nX: y\r\n\r\n", "does not answer as"),
        (b"SSH-2.0-x\r\n\r\n", "does not answer as"),
        (b"\r\n\r\n", "does not answer as"),
        (b"x" * LONGEST_HEAD_BYTES, "too long"),
        (b"HTTP/1.1 100 \r\n\r\n" * 2000, "too long|does not answer as"),
    ],
)
def test_a_proxy_of_http_that_refuses_or_lies_is_told_as_that(answer: bytes, message: str) -> None:
    with pytest.raises(ProxyError, match=message) as raised:
        shake(HTTP, answer)
    assert "script" not in str(raised.value)


def test_socks5_gives_the_name_and_leaves_what_the_server_says_first() -> None:
    sent, left = shake(SOCKS, GREETED + CONNECTED + b"220 ready")
    assert sent == b"\x05\x01\x00" + b"\x05\x01\x00\x03\x09a.example\x01\xbb"
    assert left == b"220 ready"


@pytest.mark.parametrize(
    ("host", "written"),
    [("8.8.8.8", b"\x01\x08\x08\x08\x08"), ("2001:db8::1", b"\x04\x20\x01\x0d\xb8" + bytes(11) + b"\x01")],
)
def test_socks5_gives_an_address_as_an_address(host: str, written: bytes) -> None:
    sent, _ = shake(SOCKS, GREETED + CONNECTED, host)
    assert sent.endswith(b"\x05\x01\x00" + written + b"\x01\xbb")


def test_socks5_logs_in_where_the_proxy_wants_it() -> None:
    sent, left = shake(SOCKS_ANN, LOGGED_IN + CONNECTED)
    assert sent.startswith(b"\x05\x02\x00\x02" + b"\x01\x03ann\x06s3cr3t" + b"\x05\x01")
    assert left == b""
    sent, _ = shake(SOCKS_ANN, GREETED + CONNECTED)
    assert b"s3cr3t" not in sent


@pytest.mark.parametrize(
    "bound", [b"\x01" + bytes(6), b"\x03\x03abc" + bytes(2), b"\x03\x00" + bytes(2), b"\x04" + bytes(18)]
)
def test_socks5_takes_the_whole_answer_whatever_address_it_names(bound: bytes) -> None:
    assert shake(SOCKS, GREETED + b"\x05\x00\x00" + bound + b"!")[1] == b"!"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\x04\x00", "does not answer as"),
        (b"HT", "does not answer as"),
        (b"\x05\xff", "another login"),
        (b"\x05\x01", "not offered"),
        (b"\x05\x02\x01\x01", "user and password"),
        (b"\x05\x02\x05\x00", "user and password"),
        (GREETED + b"\x04\x00\x00\x01", "does not answer as"),
        (GREETED + b"\x05\x00\x00\x02", "unknown kind"),
        (GREETED + b"\x05\x02\x00\x01" + bytes(6), "rules do not allow"),
        (GREETED + b"\x05\x05\x00\x01" + bytes(6), "was refused"),
        (GREETED + b"\x05\xee\x00\x01" + bytes(6), "^it answers 238$"),
    ],
)
def test_a_proxy_of_socks5_that_refuses_or_lies_is_told_as_that(answer: bytes, message: str) -> None:
    with pytest.raises(ProxyError, match=message) as raised:
        shake(SOCKS_ANN, answer)
    assert "s3cr3t" not in str(raised.value)


def test_a_login_that_was_not_offered_is_not_sent() -> None:
    with pytest.raises(ProxyError, match="not offered"):
        shake(SOCKS, b"\x05\x02")


@FUZZ
@given(
    st.sampled_from([HTTP, SOCKS, SOCKS_ANN]),
    st.one_of(
        st.binary(max_size=64),
        st.binary(max_size=64).map(lambda data: b"HTTP/1.1 2" + data + b"\r\n\r\n"),
        st.binary(max_size=64).map(lambda data: GREETED + data),
        st.binary(max_size=64).map(lambda data: LOGGED_IN + b"\x05\x00" + data),
    ),
)
def test_whatever_a_proxy_answers_it_connects_or_is_told_not_to(proxy: ProxyAddress, answers: bytes) -> None:
    try:
        _, left = shake(proxy, answers)
    except (ProxyError, Hungry):
        return
    assert answers.endswith(left)
