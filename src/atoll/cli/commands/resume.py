"""``atoll resume``."""

from __future__ import annotations

import click

from atoll import Sandbox
from atoll.cli.lazy import Command
from atoll.cli.options import json_option, sandboxes_argument
from atoll.cli.states import change
from atoll.types import SandboxInfo


@click.command(name="resume", cls=Command)
@sandboxes_argument
@json_option
def command(sandboxes: tuple[str, ...], as_json: bool) -> None:
    r"""Wake paused, suspended or crashed sandboxes now. Any use of one does the same.

    \b
    Example:
      atoll resume work
    """
    change(sandboxes, _resumed, as_json=as_json)


def _resumed(sandbox: Sandbox) -> SandboxInfo:
    sandbox.resume()
    return sandbox.info()
