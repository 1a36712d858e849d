"""Whatever a guest answers, its readers give values or an AtollError, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll import guest
from atoll.errors import AtollError
from atoll.guest import FRAME_LIMIT_BYTES, FrameReader

FUZZ = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None, max_examples=60
)
KEYS = st.sampled_from(
    ["file", "files", "processes", "pid", "argv", "name", "path", "kind", "size_bytes", "mode", "owner", "group",
     "modified_at", "target", "exit_code", "signal", "timed_out", "missed", "error", "code", "message", "time_ns",
     "pty", "tag"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20), st.sampled_from(["file", "create", "busy"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)
BODIES = st.one_of(
    st.binary(max_size=200), VALUES.filter(lambda value: value is not None).map(repr).map(str.encode)
)
READERS: list[Callable[[bytes], object]] = [
    guest.file_from, guest.files_from, guest.processes_from, guest.stats_from, guest.time_from, guest.unpacked_from,
    guest.started_from, guest.end_from, guest.watch_event_from,
]  # fmt: skip


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@FUZZ
@given(body=st.one_of(BODIES, VALUES.map(lambda value: _json(value))))
def test_an_answer_is_a_value_or_an_error(read: Callable[[bytes], object], body: bytes) -> None:
    with contextlib.suppress(AtollError):
        read(body)


@FUZZ
@given(status=st.integers(400, 599), body=st.one_of(BODIES, VALUES.map(lambda value: _json(value))))
def test_a_fault_is_always_an_error_that_a_terminal_can_show(status: int, body: bytes) -> None:
    error = guest.error_from(status, body)
    assert all(char.isprintable() or char in "\n\t" for char in str(error))


@FUZZ
@given(data=st.binary(max_size=400), cut=st.integers(1, 100))
def test_frames_are_cut_or_refused_however_they_come(data: bytes, cut: int) -> None:
    reader = FrameReader()
    frames = []
    with contextlib.suppress(AtollError):
        for at in range(0, len(data), cut):
            frames += reader.feed(data[at : at + cut])
    assert sum(len(frame.payload) + 5 for frame in frames) <= len(data)


@FUZZ
@given(
    rows=st.lists(st.tuples(st.sampled_from(b"soetwkx"), st.binary(max_size=80)), max_size=12),
    cut=st.integers(1, 100),
)
def test_whole_frames_arrive_as_they_were_sent(rows: list[tuple[int, bytes]], cut: int) -> None:
    data = b"".join(bytes([kind]) + len(payload).to_bytes(4, "big") + payload for kind, payload in rows)
    reader = FrameReader()
    frames = [frame for at in range(0, len(data), cut) for frame in reader.feed(data[at : at + cut])]
    assert [(ord(frame.kind), frame.payload) for frame in frames] == rows
    assert not reader.midway


def test_a_reader_keeps_less_than_one_frame() -> None:
    reader = FrameReader()
    assert reader.feed(b"o" + (FRAME_LIMIT_BYTES).to_bytes(4, "big") + bytes(FRAME_LIMIT_BYTES - 1)) == []
    with pytest.raises(AtollError):
        FrameReader().feed(b"o" + (FRAME_LIMIT_BYTES + 1).to_bytes(4, "big"))


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (msgspec.MsgspecError, OverflowError, UnicodeError):
        return b"null"
