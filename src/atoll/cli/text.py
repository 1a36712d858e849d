"""Formats text for people. Nothing from a guest reaches the terminal as a control sequence."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence


def plain(text: str) -> str:
    """Return the text with everything unprintable (escapes, newlines, direction marks) spelled out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns under their names, one row a line, with control characters spelled out."""
    cells = [[plain(cell) for cell in row] for row in [head, *rows]]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        padded = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def size(count_bytes: float | None) -> str:
    """Return a number of bytes in the largest unit that keeps it above one; ``-`` for None."""
    if count_bytes is None:
        return "-"
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age(since_s: float, now_s: float) -> str:
    """Return the time since a Unix time, in its largest unit."""
    passed_s = max(0.0, now_s - since_s)
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed_s >= length_s:
            return f"{int(passed_s // length_s)} {unit}"
    return f"{int(passed_s)} s"


def moment(at_s: float) -> str:
    """Return a Unix time as a local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
