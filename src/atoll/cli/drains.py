"""Shows the results of ``atoll drain`` and ``atoll undrain``."""

from __future__ import annotations

from collections.abc import Mapping

import click

from atoll import Sandbox
from atoll.cli.text import plain, table
from atoll.errors import AtollError


def names_of(ids: Mapping[str, object]) -> dict[str, str]:
    """Return the names of sandboxes by id, ``-`` for none. A sandbox that is gone is left out."""
    found = {}
    for id_ in ids:
        try:
            found[id_] = Sandbox.get(id_).name or "-"
        except AtollError:  # it is gone by now
            continue
    return found


def show(text: str, failed: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Print a line, and below it the sandboxes that failed and why."""
    click.echo(plain(text))
    if failed:
        rows = [[id_, names.get(id_, "-"), why] for id_, why in failed.items()]
        click.echo(table(["SANDBOX", "NAME", "WHY"], rows))
