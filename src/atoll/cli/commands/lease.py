"""``atoll lease``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length, lease_shown
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held


@click.command(name="lease", cls=Command)
@sandbox_argument
@click.argument("length", metavar="LENGTH", type=Length())
@click.option("--extend-only", is_flag=True, help="Never shorten the lease.")
@json_option
def command(sandbox: str, length: float | None, extend_only: bool, as_json: bool) -> None:
    r"""Make a sandbox's lease end LENGTH from now: 90s, 10m, 2h, 1d; off removes the lease.

    The option --on-lease-end of its creation decides what happens then. 0 ends the lease now.

    \b
    Example:
      atoll lease work 30m
      atoll lease work off
    """
    with held(sandbox) as found:
        info = found.set_lease(length, extend_only=extend_only)
    if as_json:
        show_json(info)
    else:
        click.echo(lease_shown(info))
