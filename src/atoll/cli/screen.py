"""Shows on our own terminal what a program inside writes."""

from __future__ import annotations

import os
import re
import sys

# Terminal modes that a program may change, with their values when nothing has changed them: cursor keys,
# visible cursor, alternate screen, mouse, focus, pasting. The code tracks what is set and undone, because
# undoing some modes moves the cursor.
_MODE = re.compile(rb"\x1b\[\?([\d;]{1,40})([hl])")
_WATCHED = frozenset({1, 25, 47, 1047, 1049, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004})
_USUALLY_SET = frozenset({25})
_TAIL_BYTES = 48
# Queries, which the terminal would answer as if somebody typed; titles, clipboard access and bells.
_QUESTIONS = re.compile(
    rb"\x1b\[[0-9;:<=>?]*(?:[cnxu]|\$p|[>]?q|1[1-9]t|2[01]t)"
    rb"|\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\|$)"
    rb"|\x1bZ|[\x05\x07]"
)
_CURSOR = re.compile(rb"\x1b\[u")


class Screen:
    """Writes output to standard output at once, and restores the terminal at the end.

    Raises:
        OSError: From ``write``: standard output is closed.
    """

    def __init__(self) -> None:
        self._is_terminal = os.isatty(1)
        self._modes = set(_USUALLY_SET)
        self._tail = b""

    def write(self, data: bytes) -> None:
        """Show what a program wrote."""
        self._watch(data)
        _write(data)

    def show_again(self, data: bytes) -> None:
        """Show earlier output again, without what the terminal would answer or do a second time."""
        self.write(again(data))

    def leave(self) -> None:
        """Undo the modes that the program set and did not undo, when its terminal is left or has ended."""
        if not self._is_terminal or self._modes == _USUALLY_SET:
            return
        undone = sorted(self._modes ^ _USUALLY_SET, reverse=True)
        _write(b"".join(b"\x1b[?%d%c" % (mode, b"h" if mode in _USUALLY_SET else b"l") for mode in undone))
        _write(b"\x1b[0m")
        self._modes = set(_USUALLY_SET)

    def new_line(self) -> None:
        """Leave the line that the program was writing on."""
        if self._is_terminal:
            _write(b"\r\n")

    def _watch(self, data: bytes) -> None:
        seen = self._tail + data
        end = 0
        for found in _MODE.finditer(seen):
            end = found.end()
            for mode in found[1].split(b";"):
                if mode and int(mode) in _WATCHED:
                    (self._modes.add if found[2] == b"h" else self._modes.discard)(int(mode))
        self._tail = seen[max(end, len(seen) - _TAIL_BYTES) :]


def again(data: bytes) -> bytes:
    """Return the part of a program's terminal output that can be shown a second time."""
    return _QUESTIONS.sub(lambda found: found[0] if _CURSOR.fullmatch(found[0]) else b"", data)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
