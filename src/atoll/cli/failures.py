"""Shows a failure as one line on standard error."""

from __future__ import annotations

import json
import re

import click

from atoll.cli.text import plain
from atoll.errors import AtollError


class Failure(Exception):
    """Carries an error of atoll to the last line, worded for the command that failed."""

    def __init__(self, error: AtollError, *, as_json: bool) -> None:
        self.error = error
        self.message = in_words_of_options(error.message)
        hint = error.hint_for("cli")
        self.hint = None if hint is None else in_words_of_options(hint)
        self.as_json = as_json
        super().__init__(f"{self.message} ({self.hint})" if self.hint else self.message)


def in_words_of_options(text: str) -> str:
    """Replace the SDK's parameter names in a message by this command's options.

    For example, ``wake_ttl_s`` becomes ``--wake-lease``.
    """
    context = click.get_current_context(silent=True)
    for option in context.command.params if context is not None else ():
        # other names may be ordinary words, and a name followed by = is Python code
        if (
            isinstance(option, click.Option)
            and option.name
            and ("_" in option.name or option.name == "vcpus")
        ):
            text = re.sub(rf"\b{option.name}\b(?!=)", option.opts[-1], text)
    return text.replace("or None for no", "or off for no")


def failure_line(error: Exception) -> str:
    """Return the line for an error: the fault, the thing with the fault, and the remedy."""
    if isinstance(error, Failure):
        if error.as_json:
            return _as_json(error)
        return f"atoll: {plain(str(error))}"
    if isinstance(error, AtollError):
        return f"atoll: {plain(error.told_to('cli'))}"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"atoll: {plain(error.format_message())} (see: {error.ctx.command_path} --help)"
    if isinstance(error, click.ClickException):
        return f"atoll: {plain(error.format_message())}"
    if isinstance(error, OSError):
        return f"atoll: {plain(str(error))}"
    return f"atoll: internal error: {type(error).__name__}: {plain(str(error))}"


def _as_json(failure: Failure) -> str:
    fields = {
        "code": failure.error.code,
        "message": failure.message,
        "hint": failure.hint,
        "sandbox_id": failure.error.sandbox_id,
        "retryable": failure.error.retryable,
    }
    return json.dumps({"error": fields})
