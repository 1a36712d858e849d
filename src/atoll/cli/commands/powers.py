"""``atoll powers``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.powers_shown import power_lines
from atoll.cli.sandboxes import asked


@click.command(name="powers", cls=Command)
@sandbox_argument
@json_option
def command(sandbox: str, as_json: bool) -> None:
    r"""Show what a sandbox could do at worst, in plain sentences. This does not wake it.

    It tells what the network, secrets, volumes, ports and limits allow, and what to look at first.

    \b
    Example:
      atoll powers work
    """
    with asked(sandbox) as found:
        powers = found.powers()
    if as_json:
        show_json(powers)
        return
    for line in power_lines(powers):
        click.echo(line)
