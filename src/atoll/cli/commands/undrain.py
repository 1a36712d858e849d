"""``atoll undrain``."""

from __future__ import annotations

import click

from atoll import Housekeeping
from atoll.cli.drains import names_of, show
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.exit_codes import code_of_answer


@click.command(name="undrain", cls=Command)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    r"""Let sandboxes start and wake again, and wake those that ran before `atoll drain`.

    Each begins a new lease. Sandboxes that slept or were paused before stay so until their next use. The exit
    code is 1 if one could not be woken.

    \b
    Example:
      atoll undrain
    """
    with progress_shown() as report:
        done = Housekeeping.undrain(on_progress=report)
    if as_json:
        show_json(done)
    else:
        text = f"{len(done.woken)} woken"
        if done.failed:
            text += f", {len(done.failed)} could not be woken"
        show(text, done.failed, names_of(done.failed))
    ctx.exit(code_of_answer(not done.failed))
