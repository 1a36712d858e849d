"""``atoll port``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held
from atoll.cli.waiting import wait_while_it_lives


@click.command(name="port", cls=Command)
@sandbox_argument
@click.argument("port", type=click.IntRange(1, 65535))
@click.argument("local_port", metavar="[LOCAL_PORT]", type=click.IntRange(0, 65535), default=0)
@json_option
def command(sandbox: str, port: int, local_port: int, as_json: bool) -> None:
    r"""Forward connections on 127.0.0.1 to a port of the sandbox, until Ctrl-C or until it is killed.

    LOCAL_PORT is the port on this machine; default: a free one.

    \b
    Example:
      atoll port work 80 8000
    """
    with held(sandbox) as target, target.ports.forward(port, local_port) as forward:
        if as_json:
            show_json({"host": "127.0.0.1", "port": forward.port})
        else:
            click.echo(f"127.0.0.1:{forward.port}")
        wait_while_it_lives(target, sandbox, port)
