from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from atoll.cli.detach_keys import DEFAULT_KEYS, DetachKeys, DetachKeysOption
from atoll.cli.screen import again

KEYS = b"\x10\x11"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (DEFAULT_KEYS, KEYS),
        ("ctrl-]", b"\x1d"),
        ("Ctrl-A,d", b"\x01d"),
        ("ctrl-@", b"\0"),
        ("none", b""),
    ],
)
def test_keys_are_said_as_docker_says_them(text: str, keys: bytes) -> None:
    assert DetachKeysOption().convert(text, None, None) == keys


@pytest.mark.parametrize("text", ["", "ctrl-", "ctrl-1", "alt-x", "ctrl-p,", "é"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a key"):
        DetachKeysOption().convert(text, None, None)


def test_the_keys_are_found_however_they_are_cut_and_do_not_reach_the_program() -> None:
    for pieces in ([b"ls\x10\x11rest"], [b"ls\x10", b"\x11"], [b"ls", b"\x10", b"\x11"]):
        keys = DetachKeys(KEYS)
        assert b"".join(map(keys.feed, pieces)) == b"ls"
        assert keys.found


def test_all_other_keys_reach_the_program() -> None:
    keys = DetachKeys(KEYS)
    typed = b"\x03\x04\x10x\x11\x10\x10y\x1b[A"
    assert keys.feed(typed) == typed
    assert keys.feed(b"\x10") == b"" and keys.pending
    assert keys.give_up() == b"\x10" and not keys.pending
    assert keys.feed(b"\x11") == b"\x11"
    assert not keys.found
    none = DetachKeys(b"")
    assert none.feed(KEYS) == KEYS and not none.pending and not none.found


def test_what_is_shown_again_asks_and_does_nothing_a_second_time() -> None:
    asked = (
        b"\x1b[c",
        b"\x1b[>0c",
        b"\x1b[6n",
        b"\x1b[?6n",
        b"\x1b[?2026$p",
        b"\x1b[>q",
        b"\x1b[?u",
        b"\x1b[14t",
        b"\x1b]10;?\x07",
        b"\x1b]52;c;aGk=\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x05",
        b"\x07",
        b"\x1bZ",
    )
    for question in asked:
        assert again(b"a" + question + b"b") == b"ab", question
    kept = b"\x1b[?1049h\x1b[31mred\x1b[0m\r\n\x1b[2J\x1b[u\x1b[1;1H\x1b[22;0;0t\xc3\xa9"
    assert again(kept) == kept


SHOWN = """
import sys
from atoll.cli.screen import Screen
screen = Screen()
for piece in eval(sys.argv[1]):
    screen.write(piece)
print("|", end="", flush=True)
screen.leave()
"""


@pytest.mark.parametrize(
    ("pieces", "undone"),
    [
        ([b"plain"], b""),
        (
            [b"\x1b[?1049h\x1b[?1000;1006h", b"\x1b[?25l"],
            b"\x1b[?1049l\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[0m",
        ),
        ([b"\x1b[?104", b"9h"], b"\x1b[?1049l\x1b[0m"),
        ([b"\x1b[?1049h", b"\x1b[?10", b"49l"], b""),
        ([b"\x1b[?12h\x1b[?9999999999h"], b""),
    ],
)
def test_a_terminal_that_is_left_is_as_it_was(pieces: list[bytes], undone: bytes) -> None:
    ours, theirs = os.openpty()
    try:
        subprocess.run([sys.executable, "-c", SHOWN, repr(pieces)], stdout=theirs, timeout=60, check=True)
        assert os.read(ours, 65536).rpartition(b"|")[2] == undone
    finally:
        os.close(ours)
        os.close(theirs)
