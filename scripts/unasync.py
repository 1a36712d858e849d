"""Make the directories _sync of src/atoll/sdk and src/atoll/tools from their _async, word by word.

Usage: python scripts/unasync.py [--check]. With --check nothing is written, and a stale file is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ATOLL = Path(__file__).resolve().parents[1] / "src/atoll"
ROOMS = ("sdk", "tools")
BANNER = "# Made by scripts/unasync.py from {room}/_async/{name}: do not edit.\n"
WORDS = {
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "Awaitable": "",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "_async": "_sync",
    "_io_async": "_io_sync",
    "anext": "next",
}
PHRASES = [
    (re.compile(r"\basync (def|with|for)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bAwaitable\[(\w+)\]"), r"\1"),
]
WORD = re.compile(r"\b\w+\b")


def unasync(source: str) -> str:
    """The sync twin of a module's text."""
    for pattern, replacement in PHRASES:
        source = pattern.sub(replacement, source)
    source = WORD.sub(lambda match: word(match[0]), source)
    lines = source.splitlines(keepends=True)
    return "".join(map(without_doubles, lines))


def word(text: str) -> str:
    """The sync twin of one word."""
    if text in WORDS:
        return WORDS[text]
    return text.removeprefix("Async") if text.startswith("Async") and text != "Async" else text


def without_doubles(line: str) -> str:
    """A line without the doubles that arise where both kinds stood beside each other."""
    if line.startswith("from collections.abc import "):
        names = line.removeprefix("from collections.abc import ").strip().split(", ")
        return f"from collections.abc import {', '.join(sorted({name for name in names if name}))}\n"
    return line.replace("Iterable[bytes | str] | Iterable[bytes | str]", "Iterable[bytes | str]")


def made() -> dict[Path, str]:
    """Every sync file with the text it must have."""
    return {
        ATOLL / room / "_sync" / path.name: BANNER.format(room=room, name=path.name)
        + unasync(path.read_text())
        for room in ROOMS
        for path in sorted((ATOLL / room / "_async").glob("*.py"))
    }


def main() -> int:
    """Write the files, or check them."""
    wanted = made()
    there = {path: path.read_text() for room in ROOMS for path in (ATOLL / room / "_sync").glob("*.py")}
    stale = sorted(path for path in {*wanted, *there} if wanted.get(path) != there.get(path))
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path} is stale: run scripts/unasync.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        if path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
