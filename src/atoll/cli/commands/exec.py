"""``atoll exec``."""

from __future__ import annotations

from typing import Any

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import env_option, json_option, program_options, sandbox_argument
from atoll.cli.program_options import ProgramOptions
from atoll.cli.programs import execute
from atoll.cli.sandboxes import held


@click.command(name="exec", cls=Command, context_settings={"allow_interspersed_args": False})
@sandbox_argument
@program_options
@env_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, sandbox: str, terminal: bool, as_json: bool, **options: Any) -> None:
    r"""Run a program in a sandbox, without a shell. A sleeping sandbox wakes.

    Standard input (unless it is a terminal), output, error and the exit code are the program's own. Ctrl-C
    ends the program with exit code 130, but not the sandbox. Options come before SANDBOX.

    \b
    Example:
      atoll exec work -- ls -l /workspace
      atoll exec --terminal work -- top
      atoll exec work -- sh -c 'echo $HOME | wc -c'
    """
    if options["argv"][0] == "--":
        options["argv"] = options["argv"][1:]
    if not options["argv"]:
        raise click.UsageError("Missing argument 'ARGV...'.", ctx)
    program = ProgramOptions.of(options, env=dict(options["env"]))
    with held(sandbox) as target:
        code = execute(target, program, as_json=as_json, terminal=terminal)
    ctx.exit(code)
