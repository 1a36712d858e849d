"""What a connection begins with tells where it wants to go, however it is cut into pieces."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.network.first_bytes import LONGEST_BYTES, read_first_bytes
from atoll.network.gate import passage

NAME = "api.example.com"
# The tests of the Go programs read it, too.
FIRST_LINES = Path(__file__).parents[3] / "policy/testdata/first_lines.json"


def greeting(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """The same greeting in records of at most this size."""
    body = hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece for piece in pieces)


def with_extension(hello: bytes, kind: int) -> bytes:
    """The same greeting with one more, empty extension at its end."""
    added = kind.to_bytes(2) + b"\0\0"
    body = hello[9:]
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    length = int.from_bytes(body[at : at + 2]) + len(added)
    body = body[:at] + length.to_bytes(2) + body[at + 2 :] + added
    handshake = b"\x01" + len(body).to_bytes(3) + body
    return hello[:3] + len(handshake).to_bytes(2) + handshake


def test_a_tls_greeting_tells_the_name_that_it_asks_for() -> None:
    first = read_first_bytes(greeting(NAME))
    assert (first.kind, first.server_name, first.hides_name) == ("tls", NAME, False)
    assert read_first_bytes(greeting(None)).server_name is None


@pytest.mark.parametrize("size", [1, 3, 40, 1000])
def test_a_greeting_in_many_records_is_read_as_a_whole(size: int) -> None:
    assert read_first_bytes(in_records(greeting(NAME), size)).server_name == NAME


def test_a_greeting_is_told_only_when_all_of_it_has_come() -> None:
    hello = greeting(NAME)
    for end in range(1, len(hello)):
        first = read_first_bytes(hello[:end])
        assert first.kind == "more"
        assert end < first.wanted <= len(hello)


def test_a_greeting_that_may_hide_a_name_is_opened() -> None:
    hidden = read_first_bytes(with_extension(greeting(NAME), 0xFE0D))
    assert hidden.hides_name
    assert passage(hidden, NAME) == "inspect"


@pytest.mark.parametrize("asked", ["evil.example.net", None, f"x.{NAME}"])
def test_a_greeting_for_another_name_is_refused(asked: str | None) -> None:
    assert passage(read_first_bytes(greeting(asked)), NAME) == "refuse"


def test_a_name_in_other_letters_is_the_same_name() -> None:
    assert passage(read_first_bytes(greeting(NAME.upper())), NAME) == "pass"


@pytest.mark.parametrize(("line", "kind"), json.loads(FIRST_LINES.read_text()))
def test_the_relay_tells_http_from_other_protocols_as_the_edge_does(line: str, kind: str) -> None:
    data = line.encode()
    first = read_first_bytes(data)
    assert first.kind == kind
    if kind != "more":
        assert passage(first, NAME) == ("inspect" if kind == "http" else "pass")
    if kind == "http":
        assert read_first_bytes(data.rstrip(b"\r\n\t ") + b"\nHost: x\n\n").kind == "http"
        assert read_first_bytes(data.rstrip(b"\r\n")).is_line


def test_a_first_line_without_end_is_refused_at_last() -> None:
    assert read_first_bytes(b"A" * 20 + b" " + b"x" * 9000).kind == "invalid"


@settings(deadline=None, max_examples=500, derandomize=True, database=None)
@given(
    st.binary(min_size=1, max_size=400),
    st.sampled_from([b"", b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb", b"GET "]),
)
def test_whatever_comes_is_told_without_an_error(data: bytes, before: bytes) -> None:
    first = read_first_bytes(before + data)
    assert first.kind != "more" or len(before + data) < first.wanted <= LONGEST_BYTES + 5


@pytest.mark.parametrize(
    "before",
    [b"\x15\x03\x01\x00\x02\x01\x5a", b"\x15\x03\x03\x00\x02\x01\x00", b"\x14\x03\x03\x00\x01\x01"],
    ids=["a warning", "an end", "a change of ciphers"],
)
def test_a_greeting_behind_what_a_server_skips_is_refused(before: bytes) -> None:
    first = read_first_bytes(before + greeting("other.example.com"))
    assert passage(first, NAME) == "refuse"


def test_a_greeting_in_the_form_of_ssl_2_is_refused_and_waited_for() -> None:
    hello = b"\x80\x38\x01\x03\x03" + bytes(53)
    assert passage(read_first_bytes(hello), NAME) == "refuse"
    for count in range(1, 4):
        first = read_first_bytes(hello[:count])
        assert (first.kind, first.wanted, first.is_line) == ("more", count + 1, True)


@pytest.mark.parametrize("data", [b"\x80\x38\x02\x03", b"\x15\x02\x01", b"\x14\x03\x03\x01"])
def test_what_only_begins_like_tls_in_disguise_passes(data: bytes) -> None:
    assert passage(read_first_bytes(data), NAME) == "pass"
