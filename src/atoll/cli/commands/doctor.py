"""``atoll doctor``."""

from __future__ import annotations

import click

from atoll import Supervisor
from atoll.cli.lazy import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.text import plain

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
    ctx.exit(0 if report.fit else 1)
