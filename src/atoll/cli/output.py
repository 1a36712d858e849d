"""Prints results on standard output."""

from __future__ import annotations

import re
from typing import Any

import click
import msgspec

# JSON need not escape these, and some terminals obey them.
_CONTROLS = re.compile("[\x7f-\x9f]")


def show_json(value: Any) -> None:
    """Print a value of atoll's types as indented JSON that is safe for a terminal."""
    click.echo(_safe(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def show_json_line(value: Any) -> None:
    """Print one value of several as JSON on its own line."""
    click.echo(_safe(msgspec.json.encode(value)))


def note(text: str) -> None:
    """Print a note about the work on standard error, so that it does not mix into a pipe."""
    click.echo(text, err=True)


def _safe(text: bytes) -> str:
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text.decode())
