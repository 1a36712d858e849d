"""``atoll logs``."""

from __future__ import annotations

import sys

import click

from atoll.cli.lazy import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.states import held


@click.command(name="logs", cls=Command)
@sandbox_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@json_option
def command(sandbox: str, follow: bool, as_json: bool) -> None:
    r"""Show what the sandbox's own machinery logged. Showing does not wake it.

    \b
    Example:
      atoll logs work --follow
    """
    with held(sandbox) as source:
        for text in source.logs(follow=follow):
            if as_json:
                show_json({"text": text})
            else:
                sys.stdout.write(text)
            sys.stdout.flush()
