"""Docstrings as Markdown: paragraphs as they are, and each section as a list of names."""

from __future__ import annotations

import inspect
import re

_SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Postcondition")
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)}):$", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w[\w, .*]*?): ")


def markdown_of(docstring: str) -> str:
    """The docstring in Markdown."""
    head, *sections = _SECTION.split(inspect.cleandoc(docstring))
    parts = [_prose(head)]
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        entries, rest = _entries(body)
        parts += [f"**{name}**", "\n".join(f"- {entry}" for entry in entries), _prose(rest)]
    return "\n\n".join(part for part in parts if part.strip())


def _entries(body: str) -> tuple[list[str], str]:
    """The entries of a section, whose lines are indented, and what follows it."""
    inside, _, rest = body.partition("\n\n")
    entries: list[list[str]] = []
    for line in inside.strip("\n").splitlines():
        if line.startswith("    ") and not line.startswith("     ") or not entries:
            entries.append([line.strip()])
        else:
            entries[-1].append(line.strip())
    return [_named(" ".join(lines)) for lines in entries], inspect.cleandoc(rest)


def _named(entry: str) -> str:
    text = _inline(entry)
    found = _ENTRY.match(text)
    return f"`{found[1]}`: {text[found.end() :]}" if found else text


def _prose(text: str) -> str:
    return _inline(re.sub(r"::$", ":", text.strip(), flags=re.MULTILINE))


def _inline(text: str) -> str:
    return text.replace("``", "`")
