"""``atoll deny``."""

from __future__ import annotations

import click

from atoll import Asks
from atoll.cli.cards import ending
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json


@click.command(name="deny")
@click.argument("ask_id", metavar="ASK")
@click.option("--because", "reason", default="", metavar="TEXT", help="A sentence for the agent.")
@json_option
def command(ask_id: str, reason: str, as_json: bool) -> None:
    r"""Refuse the act of a sandbox that waits for an answer.

    \b
    Example:
      atoll deny 5f0c6b1e2d3a4958 --because "Ask for less than 100 euros."
    """
    ended = Asks.deny(Asks.get(ask_id), reason)
    if as_json:
        show_json(ended)
    else:
        note(ending(ended))
