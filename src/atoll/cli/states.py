"""Sandboxes that commands act on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from atoll import Sandbox
from atoll.cli.failures import FAILED, Failure, failure_line
from atoll.cli.output import note, show_json
from atoll.errors import AtollError


def change(refs: Sequence[str], action: Callable[[Sandbox], Any], *, as_json: bool) -> None:
    """Do something to each sandbox; one that fails does not stop it, but makes the exit code 125.

    Args:
        refs: Ids or names.
        action: What to do; what it returns is what ``--json`` shows for that sandbox.
        as_json: Print the results as JSON by reference.
    """
    failed = False
    results = {}
    for ref in dict.fromkeys(refs):
        try:
            with held(ref) as sandbox:
                results[ref] = action(sandbox)
        except AtollError as error:
            failed = True
            note(failure_line(Failure(error, as_json=as_json)))
    if as_json:
        show_json(results)
    if failed:
        click.get_current_context().exit(FAILED)


@contextmanager
def killed_if_stopped() -> Iterator[list[Sandbox]]:
    """Give a list for new sandboxes: they are killed if Ctrl-C or a signal comes before the user was told of them."""
    made: list[Sandbox] = []
    try:
        yield made
    except (KeyboardInterrupt, SystemExit):
        for sandbox in made:
            with suppress(AtollError):
                sandbox.kill()
        raise


def held(ref: str) -> Sandbox:
    """Return the sandbox in whatever state it is: only its first use wakes it, if it may."""
    return Sandbox.connect(ref, wake=False)
