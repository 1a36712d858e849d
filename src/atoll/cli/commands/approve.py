"""``atoll approve``."""

from __future__ import annotations

import sys
import time

import click

from atoll import Asks
from atoll.cli.cards import card, ending, rule_diff
from atoll.cli.leases import Length
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.errors import InvalidSpecError


@click.command(name="approve")
@click.argument("ask_id", metavar="ASK")
@click.option(
    "--for", "for_s", type=Length(off=False), metavar="LENGTH", help="Let such requests pass for 10m, say."
)
@click.option("--always", is_flag=True, help="Write a rule that lets such requests pass, after showing it.")
@click.option("-y", "--yes", is_flag=True, help="Write the rule without asking.")
@json_option
def command(ask_id: str, for_s: float | None, always: bool, yes: bool, as_json: bool) -> None:
    r"""Let the act of a sandbox go on that waits for an answer: exactly what `atoll asks` shows, once.

    With --for, further requests with the same method and address pass meanwhile, whatever their bodies are.
    With --always, the rule stays in the sandbox's policy.

    \b
    Example:
      atoll approve 5f0c6b1e2d3a4958
      atoll approve 5f0c6b1e2d3a4958 --for 10m
    """
    if for_s is not None and always:
        raise click.UsageError("--for and --always do not go together")
    ask = Asks.get(ask_id)
    if not as_json:
        note(card(ask, time.time()))
    if always:
        if not (diff := rule_diff(ask)):
            raise InvalidSpecError("no rule can allow just this", hint="approve it once, or use --for")
        note(diff)
        if not yes and not (sys.stdin.isatty() and click.confirm("Write this rule?", err=True)):
            raise InvalidSpecError("the rule is not written", hint="confirm it, or give --yes")
    ended = Asks.approve(ask, for_s=for_s or 0.0, always=always)
    if as_json:
        show_json(ended)
    else:
        note(ending(ended))
