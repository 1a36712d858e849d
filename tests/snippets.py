"""The blocks of code in the documentation.

A block that no test runs says why, in a comment above it: ``<!-- not run: it needs a registry -->``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_DIRECTORIES = ("guide", "cookbook", "coming-from")
PAGES = [
    ROOT / "README.md",
    *(page for name in _DIRECTORIES for page in sorted((ROOT / "docs" / name).glob("*.md"))),
    ROOT / "docs" / "reference" / "errors.md",
]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```", re.M | re.S
)


class Snippet(NamedTuple):
    """A block of code: the directory and name of its page, its language and text, and why it is not run."""

    directory: str
    page: str
    language: str
    code: str
    why: str | None


def snippets(language: str) -> list[Snippet]:
    """The blocks of a language, in the order of the pages."""
    return [
        Snippet(page.parent.name, page.stem, language, block["code"], block["why"])
        for page in PAGES
        for block in _BLOCK.finditer(page.read_text())
        if block["language"] == language
    ]
