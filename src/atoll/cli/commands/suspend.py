"""``atoll suspend``."""

from __future__ import annotations

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandboxes_argument
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import change
from atoll.types import SandboxInfo


@click.command(name="suspend", cls=Command)
@sandboxes_argument
@click.option("--no-memory", is_flag=True, help="End its processes and keep only its disk.")
@json_option
def command(sandboxes: tuple[str, ...], no_memory: bool, as_json: bool) -> None:
    r"""Put sandboxes to sleep on disk. They stop running; any use wakes them where they were.

    \b
    Example:
      atoll suspend work play
    """

    def suspended(sandbox: Sandbox) -> SandboxInfo:
        with progress_shown() as report:
            sandbox.suspend(memory=not no_memory, on_progress=report)
        return sandbox.info()

    change(sandboxes, suspended, as_json=as_json)
