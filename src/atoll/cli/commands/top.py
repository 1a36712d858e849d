"""``atoll top``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.usage import watch


@click.command(name="top", cls=Command)
@json_option
def command(as_json: bool) -> None:
    r"""Show what all sandboxes use, the busiest first, every two seconds until Ctrl-C. This wakes none.

    CPU is the use of one processor since the last look. --json prints a line with an object for each look.

    \b
    Example:
      atoll top
    """
    watch((), busiest_first=True, as_json=as_json)
