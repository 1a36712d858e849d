"""``atoll serve``."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from atoll.cli.lazy_commands import Command
from atoll.errors import HostError, UnsupportedError

# the packages that only the server imports, those of the extra `server`
SERVER_PACKAGES = ("granian", "httptools", "uvloop")


@click.command(
    name="serve",
    cls=Command,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    r"""Serve the E2B API, and the ports of sandboxes, to other programs and machines.

    \b
    Example:
      atoll serve --help
    """
    if sys.platform != "linux":
        raise UnsupportedError(
            "`atoll serve` runs on Linux", hint="start it on the machine with the sandboxes"
        )
    if missing := [name for name in SERVER_PACKAGES if find_spec(name) is None]:
        raise HostError(
            f"these packages of the server are not installed: {', '.join(missing)}",
            hint="run: pip install 'atoll[server]'",
        )
    # the server is a separate process, with fewer rights than this one needs
    os.execv(sys.executable, [sys.executable, "-P", "-m", "atoll.server", *arguments])
