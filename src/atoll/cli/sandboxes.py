"""Helpers for commands that act on sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from atoll import Sandbox
from atoll.cli.batch import for_each
from atoll.errors import AtollError


def change(refs: Sequence[str], action: Callable[[Sandbox], Any], *, as_json: bool) -> None:
    """Do something to each sandbox. A failure does not stop the others, but makes the exit code 125.

    Args:
        refs: Ids or names.
        action: What to do. Its result is what ``--json`` shows for that sandbox.
        as_json: Print the results as JSON, keyed by reference.
    """

    def changed(ref: str) -> object:
        with held(ref) as sandbox:
            return action(sandbox)

    for_each(refs, changed, as_json=as_json)


@contextmanager
def killed_if_stopped() -> Iterator[list[Sandbox]]:
    """Give a list for new sandboxes.

    Ctrl-C or a signal kills them if the user has not been told of them yet.
    """
    made: list[Sandbox] = []
    try:
        yield made
    except (KeyboardInterrupt, SystemExit):
        for sandbox in made:
            with suppress(AtollError):
                sandbox.kill()
        raise


def names_of_sandboxes() -> dict[str, str]:
    """Return the names of sandboxes by id. A sandbox without a name is called by its id."""
    return {info.sandbox_id: info.name or info.sandbox_id for info in Sandbox.list()}


def asked(ref: str) -> closing[Sandbox]:
    """Give the sandbox for questions in a ``with``: that does not hold it, and so is no use of it."""
    return closing(held(ref))


def held(ref: str) -> Sandbox:
    """Return the sandbox in whatever state it is. Only its first use wakes it, if allowed."""
    return Sandbox.connect(ref, wake=False)
