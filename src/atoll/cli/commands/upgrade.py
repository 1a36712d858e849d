"""``atoll upgrade``."""

from __future__ import annotations

import click

from atoll import Housekeeping
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.text import table
from atoll.errors import InvalidSpecError
from atoll.exit_codes import code_of_answer
from atoll.types import EngineUse

_KEPT = "wakes with its own engine, which is kept"
_LOST = "its engine is lost: only its disk can start, with `atoll resume --no-memory`"


@click.command(name="upgrade", cls=Command)
@click.option(
    "--check", "only_check", is_flag=True, help="Show what an upgrade means for sandboxes that sleep."
)
@json_option
@click.pass_context
def command(ctx: click.Context, only_check: bool, as_json: bool) -> None:
    r"""Show the sleeping sandboxes and snapshots that need an engine other than the installed one.

    Their memory continues only in the engine that made it, so the home keeps that program as long as something
    needs it. A sandbox moves to the installed engine when it starts from its disk. The exit code is 1 if an
    engine that is needed is lost.

    \b
    Example:
      atoll upgrade --check
    """
    if not only_check:
        raise InvalidSpecError(
            "atoll does not upgrade itself",
            hint="use `pip install --upgrade atoll`, then `atoll upgrade --check`",
        )
    report = Housekeeping.upgrade_check()
    if as_json:
        show_json(report)
    else:
        click.echo(f"installed: {report.engine} {report.engine_version}".rstrip())
        if report.others:
            click.echo(table(["KIND", "ID", "NAME", "MADE BY", "THEN"], [_row(use) for use in report.others]))
        else:
            click.echo("this engine made everything that sleeps")
    ctx.exit(code_of_answer(all(use.kept for use in report.others)))


def _row(use: EngineUse) -> list[str]:
    made_by = f"{use.engine} {use.engine_version or 'of an unknown version'}"
    return [use.kind, use.id, use.name or "-", made_by, _KEPT if use.kept else _LOST]
