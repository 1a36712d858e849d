"""``atoll pause``."""

from __future__ import annotations

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandboxes_argument
from atoll.cli.sandboxes import change
from atoll.types import SandboxInfo


@click.command(name="pause", cls=Command)
@sandboxes_argument
@json_option
def command(sandboxes: tuple[str, ...], as_json: bool) -> None:
    r"""Freeze sandboxes in memory. Any use wakes them in about a millisecond.

    \b
    Example:
      atoll pause work
    """
    change(sandboxes, _paused, as_json=as_json)


def _paused(sandbox: Sandbox) -> SandboxInfo:
    sandbox.pause()
    return sandbox.info()
