"""Helpers for commands that take several names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from atoll.cli.failures import Failure, failure_line
from atoll.cli.output import note, show_json
from atoll.cli.text import plain
from atoll.errors import AtollError
from atoll.exit_codes import ExitCode

_T = TypeVar("_T")


def for_each(
    names: Sequence[str],
    action: Callable[[str], _T],
    *,
    as_json: bool,
    shown: Callable[[dict[str, _T]], object] = lambda results: results,
) -> None:
    """Do something for each name. A failure does not stop the others, but makes the exit code 125.

    A name that succeeds prints nothing. If one failed, a line lists those that succeeded.

    Args:
        names: The names; a repeated one is used once.
        action: What to do.
        as_json: Print the results as JSON.
        shown: Makes the JSON value from the results of ``action``, keyed by the names that succeeded.
    """
    failed = False
    results: dict[str, _T] = {}
    for name in dict.fromkeys(names):
        try:
            results[name] = action(name)
        except AtollError as error:
            failed = True
            note(failure_line(Failure(error, as_json=as_json)))
    if as_json:
        show_json(shown(results))
    elif failed and results:
        click.echo(plain(f"done for the others: {', '.join(results)}"))
    if failed:
        click.get_current_context().exit(ExitCode.FAILED)
