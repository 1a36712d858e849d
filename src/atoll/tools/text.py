"""Text for a model: bounded, with both of its ends."""

from __future__ import annotations

from collections.abc import Sequence

MOST_CHARACTERS = 30_000
KEPT_BYTES = 1_000_000
MOST_FILE_BYTES = 8 << 20
_HEAD_SHARE = 0.3


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the text, or its beginning and its end if it has more than ``most`` characters.

    The end gets most of the room, because programs report their errors there.
    """
    if len(text) <= most:
        return text
    head = int(most * _HEAD_SHARE)
    left_out = len(text) - most
    return f"{text[:head]}\n[… {left_out:,} characters are left out …]\n{text[len(text) - most + head :]}"


def section(title: str, text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a titled part of an answer; nothing if there is no text."""
    return f"{title}:\n{clipped(text.rstrip(chr(10)), most)}\n" if text.strip() else ""


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as aligned columns."""
    if not rows:
        return ""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


class Seen:
    """The last that a program has written so far, both streams as they came."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self.text = ""
        self._most = most

    def add(self, text: str) -> None:
        """Take the next piece."""
        self.text = (self.text + text)[-self._most :]
