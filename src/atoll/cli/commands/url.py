"""``atoll url``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import asked


@click.command(name="url", cls=Command)
@sandbox_argument
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--expires",
    "expires_in_s",
    type=Length(off=False, least_s=1.0),
    metavar="LENGTH",
    help="Sign it: it opens the port to whoever has it for this time, like 1h.",
)
@json_option
def command(sandbox: str, port: int, expires_in_s: float | None, as_json: bool) -> None:
    r"""Print the address of a port of the sandbox at the running `atoll serve`.

    \b
    Example:
      atoll url work 8000
      atoll url --expires 1h work 8000
    """
    with asked(sandbox) as target:
        address = target.ports.url(port, expires_in_s=expires_in_s)
    if as_json:
        show_json({"url": address})
    else:
        click.echo(address)
