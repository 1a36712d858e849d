from __future__ import annotations

import tracemalloc

from atoll.sdk._output import LastLines, Tail


def test_the_last_bytes_are_kept_however_a_program_cut_them() -> None:
    data = bytes(range(256)) * 2000
    for step in (1, 3, 4096, 40_000, 65_536):
        tail = Tail(100_000)
        for at in range(0, len(data), step):
            tail.add(data[at : at + step])
        assert tail.bytes() == data[-100_000:]
        assert tail.truncated


def test_output_that_just_fits_whole_also_with_empty_pieces() -> None:
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


def last(lines: int | None, most_bytes: int, *pieces: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    kept = LastLines(lines, most_bytes)
    for kind, data in pieces:
        kept.add(kind, data)
    return kept.pieces()


def test_the_last_lines_of_both_streams_are_counted_together() -> None:
    pieces = [("o", b"one\ntwo\n"), ("e", b"three\nfour"), ("o", b"\nfive\n"), ("o", b"six\n")]
    assert last(None, 100, *pieces) == [
        ("o", b"one\ntwo\n"),
        ("e", b"three\nfour"),
        ("o", b"\nfive\nsix\n"),
    ]
    assert last(2, 100, *pieces) == [("o", b"five\nsix\n")]
    assert last(3, 100, *pieces) == [("e", b"four"), ("o", b"\nfive\nsix\n")]
    assert last(5, 100, *pieces) == [("o", b"two\n"), ("e", b"three\nfour"), ("o", b"\nfive\nsix\n")]
    assert last(1, 100, ("o", b"one\ntwo")) == [("o", b"two")]
    assert last(0, 100, *pieces) == last(5, 0, *pieces) == []


def test_what_is_cut_by_its_bytes_begins_with_a_whole_character() -> None:
    assert last(None, 4, ("o", "aéé".encode())) == [("o", "éé".encode())]
    assert last(None, 3, ("o", "aéé".encode())) == [("o", "é".encode())]
    assert last(None, 3, ("o", b"ab"), ("e", b"cd")) == [("o", b"b"), ("e", b"cd")]


def test_a_guest_that_changes_the_stream_with_each_byte_takes_bounded_memory() -> None:
    kept = LastLines(1000, 1 << 20)
    tracemalloc.start()
    try:
        for _ in range(100_000):
            kept.add("o", b"a")
            kept.add("e", b"b")
            kept.add("e", b"")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 16 << 20
