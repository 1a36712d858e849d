"""``atoll kill``."""

from __future__ import annotations

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandboxes_argument
from atoll.cli.sandboxes import change


@click.command(name="kill", cls=Command)
@sandboxes_argument
@json_option
def command(sandboxes: tuple[str, ...], as_json: bool) -> None:
    r"""End sandboxes and erase their disk and memory. Their snapshots stay.

    \b
    Example:
      atoll kill work
      atoll kill $(atoll ls --quiet --state crashed)
    """
    change(sandboxes, _killed, as_json=as_json)


def _killed(sandbox: Sandbox) -> str:
    sandbox.kill()
    return "killed"
