from __future__ import annotations

import errno

import pytest

from atoll.errors import InvalidSpecError, NameTakenError, NoSpaceError
from atoll.protocol import (
    DIAL_LIMIT_BYTES,
    DialAnswer,
    DialRequest,
    DrainRequest,
    ErrorBody,
    caller_header,
    decode_answer,
    decode_request,
    encode,
    error_body,
    ours,
    raise_body,
    told_caller,
)


def test_dial_messages_come_back_as_they_were_sent() -> None:
    request = DialRequest(sandbox="alice", port=80)
    assert decode_request(encode(request)) == request
    answer = DialAnswer(error=ErrorBody(code="wrong_state", message="x"))
    assert decode_answer(encode(answer)) == answer
    assert len(encode(DialRequest(sandbox="a" * 63, port=65535))) < DIAL_LIMIT_BYTES


@pytest.mark.parametrize(
    "packet",
    [b"", b"{}", b'{"sandbox": "a", "port": 0}', b'{"sandbox": "a", "port": 65536}', b'{"sandbox": "a"'],
)
def test_a_packet_that_is_no_request_is_refused(packet: bytes) -> None:
    with pytest.raises(InvalidSpecError):
        decode_request(packet)


def test_an_error_travels_with_its_code_message_and_remedy() -> None:
    body = error_body(NameTakenError("alice is taken", hint="take another", sandbox_id="a"))
    with pytest.raises(NameTakenError, match="take another"):
        raise_body(body)


def test_a_foreign_error_tells_a_client_only_its_class() -> None:
    body = error_body(RuntimeError("password=hunter2"))
    assert body.code == "internal"
    assert "hunter2" not in body.message


def test_a_full_disk_is_a_lack_of_space_wherever_it_happened() -> None:
    assert isinstance(ours(OSError(errno.ENOSPC, "x")), NoSpaceError)
    assert isinstance(ours(OSError(errno.EDQUOT, "x")), NoSpaceError)
    for other in (OSError(errno.EIO, "x"), NoSpaceError("x"), ValueError("x")):
        assert ours(other) is other


def test_a_drain_waits_for_ever_or_for_a_time_that_is_one() -> None:
    assert DrainRequest().check().timeout_s is None
    assert DrainRequest(timeout_s=5).check().timeout_s == 5
    with pytest.raises(InvalidSpecError, match="timeout_s"):
        DrainRequest(timeout_s=0).check()


def test_a_dial_waits_for_some_time_or_as_long_as_usual() -> None:
    request = DialRequest(sandbox="alice", port=80, within_s=0.5)
    assert decode_request(encode(request)) == request
    with pytest.raises(InvalidSpecError, match="within_s is 0"):
        decode_request(encode(DialRequest(sandbox="alice", port=80, within_s=0)))


@pytest.mark.parametrize("caller", ["train.py (ann, 12)", "é\r\nx", "x" * 300, " x ", "x" * 199 + " x"])
def test_a_caller_fits_a_header_and_comes_back(caller: str) -> None:
    _, header = caller_header(caller)
    assert header.isascii() and header.isprintable() and header == header.strip()
    assert told_caller(header) == caller.strip()[:200].strip()


def test_a_caller_whose_name_is_no_text_has_a_header_too() -> None:
    assert told_caller(caller_header("\udcff.py")[1]) == "?.py"


@pytest.mark.parametrize("header", [None, "", "%20"])
def test_nobody_makes_a_sandbox_where_no_header_says_so(header: str | None) -> None:
    assert told_caller(header) is None
