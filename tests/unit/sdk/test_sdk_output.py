from __future__ import annotations

import tracemalloc

from atoll.sdk._output import Tail


def test_the_last_bytes_are_kept_however_a_program_cut_them() -> None:
    data = bytes(range(256)) * 2000
    for step in (1, 3, 4096, 40_000, 65_536):
        tail = Tail(100_000)
        for at in range(0, len(data), step):
            tail.add(data[at : at + step])
        assert tail.bytes() == data[-100_000:]
        assert tail.truncated


def test_output_that_just_fits_is_whole_also_with_empty_pieces() -> None:
    tail = Tail(4)
    for piece in (b"", b"ab", b"", b"cd", b""):
        tail.add(piece)
    assert tail.bytes() == b"abcd"
    assert not tail.truncated


def test_a_guest_that_writes_tiny_or_empty_pieces_takes_no_more_memory() -> None:
    tail = Tail(1 << 20)
    tracemalloc.start()
    try:
        for _ in range(200_000):
            tail.add(b"")
            tail.add(b"ab")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 2 << 20
