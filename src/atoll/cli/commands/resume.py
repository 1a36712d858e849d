"""``atoll resume``."""

from __future__ import annotations

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length
from atoll.cli.options import json_option, sandboxes_argument
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import change
from atoll.types import SandboxInfo


@click.command(name="resume", cls=Command)
@sandboxes_argument
@click.option("--lease", "ttl_s", type=Length(), metavar="LENGTH", help="How long it may run from now on.")
@click.option("--no-memory", is_flag=True, help="Drop its memory and boot it from its disk.")
@json_option
def command(sandboxes: tuple[str, ...], ttl_s: float | None, no_memory: bool, as_json: bool) -> None:
    r"""Wake paused, suspended or crashed sandboxes now. Any use of a sandbox does the same.

    \b
    Example:
      atoll resume work
    """

    def resumed(sandbox: Sandbox) -> SandboxInfo:
        with progress_shown() as report:
            sandbox.resume(ttl_s, memory=not no_memory, on_progress=report)
        return sandbox.info()

    change(sandboxes, resumed, as_json=as_json)
