"""``atoll mcp``."""

from __future__ import annotations

import os
import sys

import click

from atoll.cli.lazy_commands import Command


@click.command(
    name="mcp",
    cls=Command,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    r"""Give a model computers of its own, by the Model Context Protocol.

    \b
    Example:
      atoll mcp install claude
      atoll mcp --help
    """
    # a process of its own, which does not load the command line
    os.execv(sys.executable, [sys.executable, "-P", "-m", "atoll.mcp", *arguments])
