"""How a failure looks: one line on standard error."""

from __future__ import annotations

import json

import click

from atoll.cli.text import plain
from atoll.errors import AtollError

FAILED = 125
INTERRUPTED = 130
READER_LEFT = 141


class Failure(Exception):
    """An error of atoll on its way to the last line."""

    def __init__(self, error: AtollError, *, as_json: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.as_json = as_json


def failure_line(error: Exception) -> str:
    """Return what is shown of an error: what went wrong, with what, and the remedy."""
    if isinstance(error, Failure):
        if error.as_json:
            return _as_json(error.error)
        return f"atoll: {plain(str(error.error))}"
    if isinstance(error, AtollError):
        return f"atoll: {plain(str(error))}"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"atoll: {plain(error.format_message())} (see: {error.ctx.command_path} --help)"
    if isinstance(error, click.ClickException):
        return f"atoll: {plain(error.format_message())}"
    if isinstance(error, OSError):
        return f"atoll: {plain(str(error))}"
    return f"atoll: a fault of atoll itself: {type(error).__name__}: {plain(str(error))}"


def _as_json(error: AtollError) -> str:
    fields = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "sandbox_id": error.sandbox_id,
    }
    return json.dumps({"error": fields})
