"""``atoll open``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held
from atoll.cli.waiting import wait_while_it_lives


@click.command(name="open", cls=Command)
@sandbox_argument
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--wait",
    "wait_s",
    type=Length(least_s=0.001),
    default="60s",
    show_default=True,
    metavar="LENGTH",
    help="How long to wait until something listens on the port; off: as long as it takes.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@json_option
def command(sandbox: str, port: int, wait_s: float | None, no_browser: bool, as_json: bool) -> None:
    r"""Open the web server on a port of the sandbox in a browser. Its address holds until Ctrl-C.

    \b
    Example:
      atoll open work 8000
      atoll open --no-browser work 8000
    """
    with held(sandbox) as target:
        target.ports.wait(port, timeout_s=wait_s)
        with target.ports.forward(port) as forward:
            if as_json:
                show_json({"url": forward.url})
            else:
                click.echo(forward.url)
            if not no_browser:
                click.launch(forward.url)
            wait_while_it_lives(target, sandbox, port)
