"""``atoll logs``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json, show_json_line
from atoll.cli.sandboxes import asked
from atoll.cli.text import plain


@click.command(name="logs", cls=Command)
@sandbox_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@json_option
def command(sandbox: str, follow: bool, as_json: bool) -> None:
    r"""Show what happened to the sandbox and which programs were started in it. This does not wake it.

    --follow --json prints a line with an object for each new piece.

    \b
    Example:
      atoll logs work --follow
    """
    with asked(sandbox) as source:
        if as_json and not follow:  # without --follow, print one value, as every JSON reader expects
            show_json({"text": "".join(source.logs())})
            return
        for text in source.logs(follow=follow):
            if as_json:
                show_json_line({"text": text})
            else:
                click.echo("\n".join(map(plain, text.split("\n"))), nl=False)
