"""``atoll fork``."""

from __future__ import annotations

import click

from atoll.cli.lazy import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.states import held, killed_if_stopped


@click.command(name="fork", cls=Command)
@sandbox_argument
@click.option("-n", "--count", type=click.IntRange(1, 100), default=1, show_default=True, help="How many.")
@json_option
def command(sandbox: str, count: int, as_json: bool) -> None:
    r"""Make running copies of a sandbox, memory and disk, and print their ids: all of them or none.

    \b
    Example:
      atoll fork work -n 3
    """
    with killed_if_stopped() as copies:
        with held(sandbox) as original:
            copies += original.fork(count)
        infos = []
        for copy in copies:
            infos.append(copy.info())
            copy.close()
        if as_json:
            show_json(infos)
            return
        for info in infos:
            click.echo(info.sandbox_id)
