"""``atoll replug``."""

from __future__ import annotations

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandboxes_argument
from atoll.cli.sandboxes import change
from atoll.types import SandboxInfo


@click.command(name="replug", cls=Command)
@sandboxes_argument
@json_option
def command(sandboxes: tuple[str, ...], as_json: bool) -> None:
    r"""Give unplugged sandboxes their network back. Sandboxes that ran before continue where they were.

    \b
    Example:
      atoll replug work
    """
    change(sandboxes, _replugged, as_json=as_json)


def _replugged(sandbox: Sandbox) -> SandboxInfo:
    sandbox.replug()
    return sandbox.info()
