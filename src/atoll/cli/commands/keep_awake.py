"""``atoll keep-awake``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length, idle_shown
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held


@click.command(name="keep-awake", cls=Command)
@sandbox_argument
@click.argument("length", metavar="LENGTH", type=Length())
@json_option
def command(sandbox: str, length: float | None, as_json: bool) -> None:
    r"""Let a sandbox count as active for LENGTH: 90s, 10m, 2h; off ends that.

    This matters for sandboxes that sleep when they are idle (--idle-pause, --idle-suspend). A lease ends as
    before.

    \b
    Example:
      atoll keep-awake work 10m
    """
    with held(sandbox) as found:
        info = found.keep_awake(length or 0)
    if as_json:
        show_json(info)
    else:
        click.echo(idle_shown(info) or "it does not sleep when it is idle")
