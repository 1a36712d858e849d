from __future__ import annotations

import pytest

from atoll.errors import AgentError
from atoll.guest import (
    FRAME_LIMIT_BYTES,
    Frame,
    FrameReader,
    end_from,
    kept_from,
    started_from,
    watch_event_from,
)


def frame(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("step", [1, 2, 5, 7, 1000])
def test_frames_come_whole_however_the_stream_is_cut(step: int) -> None:
    wanted = [Frame("s", b'{"pid": 7}'), Frame("o", b"x" * 300), Frame("k", b""), Frame("x", b"{}")]
    stream = b"".join(frame(kind.encode(), payload) for kind, payload in wanted)
    reader = FrameReader()
    got = [each for at in range(0, len(stream), step) for each in reader.feed(stream[at : at + step])]
    assert got == wanted
    assert not reader.midway


@pytest.mark.parametrize(
    "rubbish", [frame(b"z", b""), b"o" + (FRAME_LIMIT_BYTES + 1).to_bytes(4, "big"), b"HTTP/1.1 200 OK\r\n"]
)
def test_bytes_that_are_no_frames_are_refused(rubbish: bytes) -> None:
    with pytest.raises(AgentError):
        FrameReader().feed(rubbish)


def test_the_longest_frame_is_read() -> None:
    assert FrameReader().feed(frame(b"o", bytes(FRAME_LIMIT_BYTES)))[0].payload == bytes(FRAME_LIMIT_BYTES)


def test_payloads_are_read_into_values() -> None:
    assert started_from(b'{"pid": 7, "later": 1}') == 7
    assert end_from(b'{"exit_code": 137, "signal": 9, "timed_out": true}').timed_out
    assert watch_event_from(b'{"kind": "create", "path": "a/b"}').path == "a/b"


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"pid": -1}', b'{"pid": "7"}', b"[" * 100_000])
def test_a_start_frame_that_names_no_pid_is_refused(payload: bytes) -> None:
    with pytest.raises(AgentError):
        started_from(payload)


def test_a_guest_cannot_claim_that_it_kept_more_than_it_may() -> None:
    assert kept_from(b'{"pid": 7, "kept": 5}') == 5
    assert kept_from(b'{"pid": 7}') == 0
    assert kept_from(b'{"pid": 7, "kept": 1000000000000}') < 1 << 30
