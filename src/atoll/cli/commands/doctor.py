"""``atoll doctor``."""

from __future__ import annotations

import click

from atoll import Supervisor
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.text import plain
from atoll.exit_codes import code_of_answer
from atoll.protocol import DoctorReport

SIGNS = {"ok": "ok      ", "note": "note    ", "warning": "warning ", "error": "ERROR   "}


@click.command(name="doctor", cls=Command)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    r"""Check everything that can keep sandboxes from running here, and say how to fix it.

    The exit code is 0 if sandboxes can run, else 1.

    \b
    Example:
      atoll doctor
    """
    report = Supervisor.doctor()
    if as_json:
        show_json(report)
    else:
        for finding in report.findings:
            click.echo(f"{SIGNS[finding.level]}{plain(finding.name)}: {plain(finding.message)}")
            if finding.remedy:
                click.echo(f"        to fix it: {plain(finding.remedy)}")
        click.echo(f"next: {next_step(report)}")
    ctx.exit(code_of_answer(report.fit))


def next_step(report: DoctorReport) -> str:
    """Return what to do after a check of this machine."""
    levels = {finding.level for finding in report.findings}
    if not report.fit or "error" in levels:
        return "fix what is marked ERROR, then run `atoll doctor` again"
    run = "atoll run -- python3 -c 'print(6 * 7)'"
    if "warning" in levels:
        return f"{run} works; a warning says what would work better"
    return run
