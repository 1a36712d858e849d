"""Turns text that arrives in pieces into lines of a bounded length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

LONGEST_LINE = 4096
Level = Literal["info", "warn"]


class Lines:
    """Cuts streams into lines. What a line has beyond 4,096 characters is left out."""

    def __init__(self) -> None:
        self._rest: dict[Level, str] = {}

    def of(self, level: Level) -> Callable[[str], list[str]]:
        """Return a function that takes the pieces of one stream and returns the complete lines."""

        def feed(text: str) -> list[str]:
            *lines, rest = (self._rest.get(level, "") + text).split("\n")
            self._rest[level] = rest[: LONGEST_LINE + 1]
            return [_shown(line) for line in lines]

        return feed

    def rest(self) -> Iterator[tuple[Level, str]]:
        """Return what followed the last line break."""
        for level, text in self._rest.items():
            if text:
                yield level, _shown(text)
        self._rest.clear()


def _shown(line: str) -> str:
    line = line.rstrip("\r").rpartition("\r")[2]
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."
