from atoll.tools import clipped, columns, image_kind, told
from atoll.types import ExecResult


def test_a_long_text_keeps_both_ends_and_says_how_much_is_left_out() -> None:
    text = "a" * 1000 + "b" * 1000
    short = clipped(text, 100)
    assert short.startswith("a" * 30 + "\n[… 1,900 characters")
    assert short.endswith("]\n" + "b" * 70)


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert clipped("x" * 100, 100) == "x" * 100


def test_columns_are_aligned_and_have_no_blanks_at_their_end() -> None:
    assert columns([("a", "bb", "c"), ("aaa", "b", "")]) == "a    bb  c\naaa  b"
    assert columns([]) == ""


def test_a_result_tells_its_exit_code_and_only_the_streams_that_have_text() -> None:
    assert told(ExecResult(exit_code=3, stdout_bytes=b"out\n")) == "exit code: 3\nstdout:\nout\n"


def test_pictures_are_known_by_their_first_bytes() -> None:
    assert image_kind(b"\x89PNG\r\n\x1a\n...") == "png"
    assert image_kind(b"RIFF....WEBPVP8 ") == "webp"
    assert image_kind(b"RIFF....WAVEfmt ") is None
    assert image_kind(b"hello") is None
