"""``atoll limits``."""

from __future__ import annotations

from typing import Any

import click

from atoll.cli.host_size import note_beyond_host
from atoll.cli.lazy_commands import Command
from atoll.cli.limit_options import described, limit_options, limits
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held


@click.command(name="limits", cls=Command)
@sandbox_argument
@limit_options
@click.option("--best-effort", is_flag=True, help="Accept limits that this host cannot enforce.")
@json_option
def command(sandbox: str, best_effort: bool, as_json: bool, **options: Any) -> None:
    r"""Change what a sandbox may use, and show the new limits. This does not wake it.

    \b
    Example:
      atoll limits work --memory 2048 --processes 500
    """
    wanted = limits(options)
    note_beyond_host(wanted)
    with held(sandbox) as found:
        if wanted.given():
            found.set_limits(wanted, best_effort=best_effort)
        info = found.info()
    if as_json:
        show_json(info.limits)
    else:
        click.echo(described(info.limits) or "the default ones")
