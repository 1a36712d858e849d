"""Commands that take several names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from atoll.cli.failures import FAILED, Failure, failure_line
from atoll.cli.output import note, show_json
from atoll.errors import AtollError

_T = TypeVar("_T")


def for_each(
    names: Sequence[str],
    action: Callable[[str], _T],
    *,
    as_json: bool,
    shown: Callable[[dict[str, _T]], object] = lambda results: results,
) -> None:
    """Do something for each name; one that fails does not stop it, but makes the exit code 125.

    Args:
        names: Each is taken once.
        action: What to do.
        as_json: Print as JSON what was done.
        shown: What of that: it gets what ``action`` returned, by the names that it did not fail for.
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
    if failed:
        click.get_current_context().exit(FAILED)
