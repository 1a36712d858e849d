"""``atoll unplug``."""

from __future__ import annotations

from contextlib import suppress

import click

from atoll import Sandbox, Supervisor
from atoll.cli.lazy_commands import Command
from atoll.cli.options import complete_sandbox, json_option
from atoll.cli.output import note, show_json
from atoll.cli.sandboxes import change, names_of_sandboxes
from atoll.cli.text import plain
from atoll.errors import AtollError
from atoll.exit_codes import ExitCode
from atoll.types import SandboxInfo

_ANSWERS_S = 2.0


@click.command(name="unplug", cls=Command)
@click.argument("sandboxes", metavar="SANDBOX...", nargs=-1, shell_complete=complete_sandbox)
@click.option("--all", "all_of_them", is_flag=True, help="Unplug every sandbox.")
@click.option("--reason", metavar="TEXT", help="Why, as `atoll info` shows it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, sandboxes: tuple[str, ...], all_of_them: bool, reason: str | None, as_json: bool
) -> None:
    r"""Cut sandboxes off from the network at once, and freeze them. No use wakes them until `atoll replug`.

    They are kept as they are, for inspection. If the supervisor does not answer within two seconds, this works
    without it.

    \b
    Example:
      atoll unplug work --reason "it scans the network"
      atoll unplug --all
    """
    if all_of_them == bool(sandboxes):
        raise click.UsageError("name sandboxes, or give --all", ctx)
    if not Supervisor.answers(_ANSWERS_S):
        _without_supervisor(ctx, sandboxes, reason, as_json=as_json)
    elif all_of_them:
        _all(ctx, reason, as_json=as_json)
    else:

        def unplugged(sandbox: Sandbox) -> SandboxInfo:
            sandbox.unplug(reason)
            return sandbox.info()

        change(sandboxes, unplugged, as_json=as_json)


def _all(ctx: click.Context, reason: str | None, *, as_json: bool) -> None:
    done = Supervisor.unplug_all(reason)
    names: dict[str, str] = {}
    with suppress(AtollError):  # the unplug is done; only the names are missing
        names = names_of_sandboxes()
    if as_json:
        show_json(done)
    else:
        for sandbox_id in done.unplugged:
            click.echo(names.get(sandbox_id, sandbox_id))
    for sandbox_id, why in done.failed.items():
        note(f"atoll: {names.get(sandbox_id, sandbox_id)}: {plain(why)}")
    ctx.exit(ExitCode.FAILED if done.failed else ExitCode.DONE)


def _without_supervisor(
    ctx: click.Context, sandboxes: tuple[str, ...], reason: str | None, *, as_json: bool
) -> None:
    note(f"the supervisor did not answer within {_ANSWERS_S:g} s: unplugging without it")
    done = Supervisor.unplug_without(sandboxes, reason)
    if as_json:
        show_json(done)
    for one in done:
        if not as_json:
            states = {"network cut": one.cut, "guest frozen": one.frozen, "marked": one.marked}
            told = ", ".join(what if so else f"NOT {what}" for what, so in states.items())
            click.echo(f"{one.name or one.sandbox_id}: {plain(told)}")
        for problem in one.problems:
            note(f"atoll: {one.sandbox_id}: {plain(problem)}")
    ctx.exit(ExitCode.FAILED if any(one.problems for one in done) else ExitCode.DONE)
