from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from atoll.types.internal import converted, from_json, msgpack_reader

# Four threads that read a type, and a part of it, for the first time at the same moment.
FIRST_USE = """
import sys, threading
import msgspec
from atoll.types.internal import converted, from_json

sys.setswitchinterval(1e-6)
fields = [(f"field_{number}", int | None, None) for number in range(20)]
for turn in range(20):
    parts = [msgspec.defstruct(f"Part{number}", fields) for number in range(10)]
    whole = msgspec.defstruct("Whole", [(part.__name__, part) for part in parts])
    plain = {part.__name__: {"field_1": 1} for part in parts}
    data = msgspec.json.encode(plain)
    part_data = msgspec.json.encode({"field_1": 1})
    uses = [
        lambda: from_json(data, whole),
        lambda: converted(plain, whole),
        lambda: from_json(data, dict[str, parts[9]]),
        lambda: from_json(part_data, parts[9]),
    ]
    start = threading.Barrier(len(uses))
    threads = [threading.Thread(target=lambda use=use: (start.wait(), use())) for use in uses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""

FORKED = """
import os, sys, threading
from atoll.types import decoding
from atoll.types.internal import from_json

learning, leave = threading.Event(), threading.Event()

def learn():
    with decoding._learning:
        learning.set()
        leave.wait()

thread = threading.Thread(target=learn)
thread.start()
learning.wait()
threading.Timer(0.05, leave.set).start()
child = os.fork()
if child == 0:
    os._exit(from_json(b"[7]", list[int])[0])
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Point(msgspec.Struct):
    x: int


def test_threads_may_read_a_type_for_the_first_time_at_once() -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", FIRST_USE], check=True, timeout=120)


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=120).returncode == 7


@pytest.mark.parametrize("kind", [Point, list[Point], Point | None, Any])
def test_what_is_of_another_kind_is_refused(kind: Any) -> None:
    data = {Any: b"{", Point: b"[]"}.get(kind, b'[{"x": "1"}, 2]')
    with pytest.raises(msgspec.DecodeError):
        from_json(data, kind)


def test_values_are_converted_strictly_unless_asked_otherwise() -> None:
    assert converted({"x": "1"}, Point, strict=False) == Point(1)
    with pytest.raises(msgspec.ValidationError):
        converted({"x": "1"}, Point)


def test_message_pack_is_read_as_its_kind() -> None:
    assert msgpack_reader(Point | None)(msgspec.msgpack.encode(Point(3))) == Point(3)


@pytest.mark.parametrize("data", [b'"\xe1"', b"\xe1", b'{"\xe1": 1}', b"[" * 100_000, b"", b'"\xed\xa0\x80"'])
def test_whatever_is_wrong_with_the_bytes_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        from_json(data)
    with pytest.raises(msgspec.DecodeError):
        msgpack_reader(dict[str, str])(b"\x81\xa1\xe1\xa1\xe1")
