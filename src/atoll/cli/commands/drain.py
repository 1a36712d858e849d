"""``atoll drain``."""

from __future__ import annotations

import click

from atoll import Housekeeping
from atoll.cli.drains import names_of, show
from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.text import moment
from atoll.exit_codes import code_of_answer


@click.command(name="drain", cls=Command)
@click.option(
    "--timeout",
    "timeout_s",
    type=Length(off=False, least_s=1.0),
    metavar="LENGTH",
    help="How long to wait, for example 5m; without this, until everything sleeps.",
)
@click.option("--status", is_flag=True, help="Only print whether this home is drained.")
@json_option
@click.pass_context
def command(ctx: click.Context, timeout_s: float | None, status: bool, as_json: bool) -> None:
    r"""Suspend every sandbox, and let none start or wake until `atoll undrain`.

    This is for a reboot, and a reboot does not end it. Meanwhile, calls that would start or wake a sandbox
    fail; the error says that the call may succeed later. The exit code is 1 if a sandbox could not be
    suspended and still runs.

    \b
    Example:
      atoll drain --timeout 5m && reboot
      atoll undrain
    """
    if status:
        _show_status(as_json=as_json)
        return
    with progress_shown() as report:
        done = Housekeeping.drain(timeout_s=timeout_s, on_progress=report)
    if as_json:
        show_json(done)
    else:
        text = f"drained: {len(done.suspended)} suspended, {len(done.sandboxes)} will run again"
        if done.failed:
            text += f", {len(done.failed)} still run"
        show(text, done.failed, names_of(done.failed))
    ctx.exit(code_of_answer(not done.failed))


def _show_status(*, as_json: bool) -> None:
    info = Housekeeping.drained()
    if as_json:
        show_json(info)
    elif not info.drained:
        click.echo("not drained")
    else:
        click.echo(
            f"drained since {moment(info.since or 0.0)}: {len(info.sandboxes)} will run again with atoll undrain"
        )
