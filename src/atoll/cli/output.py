"""Results on standard output."""

from __future__ import annotations

from typing import Any

import click
import msgspec


def show_json(value: Any) -> None:
    """Print a value of atoll's types as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def note(text: str) -> None:
    """Say something about the work on standard error, where it is in no pipe's way."""
    click.echo(text, err=True)
