"""``atoll shell``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import env_option, sandbox_argument
from atoll.cli.program_options import ProgramOptions
from atoll.cli.sandboxes import held
from atoll.cli.terminal import need_terminals, session


@click.command(name="shell", cls=Command)
@sandbox_argument
@click.option("--cwd", metavar="DIR", help="Directory inside; default: the user's home.")
@click.option("--user", metavar="NAME", help="Open the terminal as this user.")
@env_option
@click.pass_context
def command(
    ctx: click.Context, sandbox: str, cwd: str | None, user: str | None, env: tuple[tuple[str, str], ...]
) -> None:
    r"""Open a terminal in a sandbox. Leave it with exit or Ctrl-D. The sandbox keeps running.

    \b
    Example:
      atoll shell work
    """
    need_terminals(f"`atoll exec {sandbox} -- PROGRAM` runs programs without one")
    program = ProgramOptions(argv=(), cwd=cwd, user=user, env=dict(env), timeout_s=None)
    with held(sandbox) as target:
        code = session(target, program)
    ctx.exit(code)
