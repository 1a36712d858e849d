from __future__ import annotations

import pytest

from atoll.errors import EditError, InvalidSpecError
from atoll.sdk._edits import edited

SOURCE = b"""def tide(hours):
    level = moon(hours)
    return level * 2


def ebb(hours):
    level = moon(hours)
    return -level
"""


def test_the_one_place_is_replaced_and_every_other_byte_kept() -> None:
    assert edited("a", b"\xff one two\r\n\0", "one", "1") == b"\xff 1 two\r\n\0"
    assert edited("a", "schön\n".encode(), "schön\n", "") == b""


def test_text_that_is_there_twice_is_refused_with_its_lines() -> None:
    with pytest.raises(EditError, match="in tide.py 2 times, at line 2, 7"):
        edited("tide.py", SOURCE, "    level = moon(hours)\n", "")
    with pytest.raises(EditError, match=r"100 times, at line 1, 2, 3, 4, 5, \.\.\."):
        edited("a", b"x\n" * 100, "x", "y")


def test_missing_text_is_refused_with_what_is_near() -> None:
    with pytest.raises(EditError, match=r"nearest is from line 6:\ndef ebb\(hours\):\n    level = moon"):
        edited("tide.py", SOURCE, "def ebb(hour):\n  level = moon(hour)\n", "")
    with pytest.raises(EditError, match="nothing in it is like it"):
        edited("tide.py", SOURCE, "############", "")
    with pytest.raises(EditError, match="nothing in it is like it"):
        edited("tide.py", b"", "\n", "x")


def test_other_line_ends_are_named() -> None:
    with pytest.raises(EditError, match="end with CR LF"):
        edited("a", b"one\r\ntwo\r\n", "one\ntwo", "x")


def test_an_edit_that_says_nothing_is_refused() -> None:
    for old, new in (("", "x"), ("x", "x"), (b"x", "y"), ("x", None)):
        with pytest.raises(InvalidSpecError):
            edited("a", b"x", old, new)  # type: ignore[arg-type]


def test_a_file_made_to_be_slow_to_compare_is_compared_in_bounds() -> None:
    sought = "ab" * 80
    lines = "\n".join("ba" * 79 + f"{number % 10}" for number in range(100_000))
    with pytest.raises(EditError):
        edited("a", lines.encode(), sought, "")
