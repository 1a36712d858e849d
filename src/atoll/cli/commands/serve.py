"""``atoll serve``."""

from __future__ import annotations

import os
import sys

import click

from atoll.cli.lazy import Command


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
    # the server is a separate process, with fewer rights than this one needs
    os.execv(sys.executable, [sys.executable, "-P", "-m", "atoll.server", *arguments])
