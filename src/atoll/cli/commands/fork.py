"""``atoll fork``."""

from __future__ import annotations

from typing import Any

import click

from atoll.cli.delegation_options import delegation, delegation_options
from atoll.cli.lazy_commands import Command
from atoll.cli.model_options import model_access, model_options
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held, killed_if_stopped


@click.command(name="fork", cls=Command)
@sandbox_argument
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 100),
    help="Number of copies; default: the number of --name options, or 1.",
)
@click.option(
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Name of a copy; repeat it for each copy. Default: none.",
)
@delegation_options
@model_options
@json_option
def command(sandbox: str, count: int | None, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    r"""Create running copies of a sandbox's memory and disk, all or none, and print their ids.

    \b
    Example:
      atoll fork work -n 3
      atoll fork work --name left --name right
    """
    with killed_if_stopped() as copies:
        with held(sandbox) as original:
            copies += original.fork(
                count, names=names or None, delegation=delegation(options), models=model_access(options)
            )
        infos = []
        for copy in copies:
            infos.append(copy.info())
            copy.close()
        if as_json:
            show_json(infos)
            return
        for info in infos:
            click.echo(info.sandbox_id)
