"""``atoll asks``."""

from __future__ import annotations

import time

import click

from atoll import Asks
from atoll.cli.cards import card
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json_line
from atoll.types import Ask


@click.command(name="asks")
@click.argument("sandbox", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new ones until Ctrl-C.")
@json_option
def command(sandbox: str | None, follow: bool, as_json: bool) -> None:
    r"""Show which acts of sandboxes wait for an answer, with all that would be sent.

    A rule with the action `ask` holds each request that it matches. Without anybody who could answer, such a
    request is refused at once: --follow counts as somebody. --json prints a line with an object for each.

    \b
    Example:
      atoll asks --follow
      atoll approve 5f0c6b1e2d3a4958
    """
    if follow:
        for ask in Asks.follow(sandbox=sandbox):
            _show(ask, as_json=as_json)
        return
    waiting = Asks.list(sandbox=sandbox)
    for short in waiting:
        _show(Asks.get(short.ask_id), as_json=as_json)
    if not waiting and not as_json:
        note("nothing waits for an answer")


def _show(ask: Ask, *, as_json: bool) -> None:
    if as_json:
        show_json_line(ask)
        return
    click.echo(card(ask, time.time()))
    click.echo(f"  atoll approve {ask.ask_id}, or atoll deny {ask.ask_id}\n")
