"""How values look in a notebook: small tables as HTML. Text from a guest is escaped and bounded."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_TEXT_CHARACTERS = 64 << 10
_CELL_CHARACTERS = 200
_ROWS = 100
_COLUMNS = 8
_LEFT = 'style="text-align:left"'
_PRE = 'style="white-space:pre-wrap;margin:0;max-height:40em;overflow:auto"'
# sequences that a terminal would obey, colours for example
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class Rows(list[_T]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        shown = self[:_ROWS]
        names = _scalars(shown[0])[:_COLUMNS] if shown else []
        rows = [[_cell(name, getattr(value, name, None)) for name in names] for value in shown]
        more = len(self) - len(shown)
        note = f"<p>{more:,} more</p>" if more > 0 else ""
        return f"{html_table(names, rows)}{note}" if shown else "<p>nothing</p>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Every text in it is escaped and cut."""
    titles = "".join(f"<th {_LEFT}>{_escaped(name)}</th>" for name in head)
    lines = ("".join(f"<td {_LEFT}>{_escaped(text)}</td>" for text in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{f'<thead><tr>{titles}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def html_of(value: msgspec.Struct) -> str:
    """Return a value's fields as a table. Of a mapping it shows only the keys: variables may be secrets."""
    fields = [(name, _cell(name, getattr(value, name))) for name in value.__struct_fields__]
    return html_table([], [("", type(value).__name__), *((name, text) for name, text in fields if text)])


def html_output(title: str, streams: Sequence[tuple[str, str]]) -> str:
    """Return the output of a program as HTML, with every special character escaped.

    Args:
        title: How it ended.
        streams: Names and texts. It leaves out an empty text, and shows the end of a long one.
    """
    parts = [f"<p><b>{_escaped(title)}</b></p>"]
    for name, text in streams:
        if text:
            cut = "… " if len(text) > _TEXT_CHARACTERS else ""
            shown = _as_html(cut + _printable(text[-_TEXT_CHARACTERS:]))
            parts.append(f"<div>{_escaped(name)}</div><pre {_PRE}>{shown}</pre>")
    return "".join(parts)


def _escaped(text: str) -> str:
    text = _printable(text[: 2 * _CELL_CHARACTERS])
    cut = text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…"
    return _as_html(cut)


def _as_html(text: str) -> str:
    from html import escape  # loads tables that only this needs

    return escape(text)


def _printable(text: str) -> str:
    text = _TERMINAL.sub("", text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def _scalars(value: Any) -> list[str]:
    names: Iterable[str] = getattr(value, "__struct_fields__", ())
    return [name for name in names if isinstance(getattr(value, name), (str, int, float, type(None)))]


def _cell(name: str, value: object) -> str:
    """Return a field as text for people; empty if it says nothing."""
    if value is None or value == "" or value == {} or value == [] or value == ():
        return ""
    if isinstance(value, dict):
        return ", ".join(map(str, value))
    if isinstance(value, float) and (name == "at" or name.endswith("_at")) and 0 < value < 1e11:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.10g}"
    return value if isinstance(value, str) else repr(value)
