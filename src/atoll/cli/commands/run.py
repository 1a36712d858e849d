"""``atoll run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from atoll import Sandbox, Wait
from atoll.cli.host_size import note_beyond_host
from atoll.cli.lazy_commands import Command
from atoll.cli.leases import Length
from atoll.cli.options import env_option, json_option, program_options, spec_options
from atoll.cli.output import note
from atoll.cli.program_options import ProgramOptions
from atoll.cli.programs import execute
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import killed_if_stopped
from atoll.cli.spec import wanted
from atoll.errors import FileMissingError, SandboxNotFoundError
from atoll.types import Lifecycle


@click.command(name="run", cls=Command, context_settings={"allow_interspersed_args": False})
@click.option("--keep", is_flag=True, help="Leave the sandbox running and print its id on standard error.")
@spec_options
@env_option
@program_options
@click.option(
    "--lease",
    "lease_s",
    type=Length(),
    metavar="LENGTH",
    help="Kill the sandbox after this time, whatever runs in it. A team may require it. Default: never.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, keep: bool, terminal: bool, as_json: bool, **options: Any) -> None:
    r"""Create a sandbox, run a program in it without a shell, and kill it.

    Standard input (unless it is a terminal), output, error and the exit code are the program's own. Ctrl-C
    ends it with exit code 130.

    \b
    Example:
      atoll run -- python3 -c 'print(6 * 7)'
      atoll run --keep --name work -- pip install tabulate
      echo hello | atoll run tr a-z A-Z
    """
    program = ProgramOptions.of(options, env={})
    given = wanted(options)
    note_beyond_host(given["limits"])
    # Until the `with` below has begun, nothing else would kill it at a Ctrl-C.
    with killed_if_stopped() as made:
        with progress_shown() as report:
            lease = Lifecycle(ttl_s=options["lease_s"])
            wait = Wait(within_s=options["within_s"], on_progress=report)
            made.append(Sandbox.create(**given, lifecycle=lease, keep=keep, wait=wait))
        sandbox = made[0]
        if keep:
            note(f"sandbox {options['name'] or sandbox.id}")
            made.clear()
        code = _execute(sandbox, program, options, as_json=as_json, terminal=terminal)
    ctx.exit(code)


def _execute(
    sandbox: Sandbox, program: ProgramOptions, options: Mapping[str, Any], *, as_json: bool, terminal: bool
) -> int:
    try:
        with sandbox:
            return execute(sandbox, program, as_json=as_json, terminal=terminal)
    except FileMissingError as error:
        if options["image"] is None and options["template"] is None:
            error.remedy = image_hint(program.argv, error.remedy)
        raise
    except SandboxNotFoundError as error:  # not named by its user: say what happened to it
        why = {"--lease": options["lease_s"], "--lifetime": options["lifetime_s"]}
        ends = " or ".join(f"{option} of {length_s:g} s" for option, length_s in why.items() if length_s)
        raise SandboxNotFoundError(
            f"the sandbox was killed while {program.argv[0]!r} ran in it",
            hint=f"its {ends} may have ended: give a longer one"
            if ends
            else "another client killed it; run it again",
            sandbox_id=error.sandbox_id or sandbox.id,
        ) from error


def image_hint(argv: Sequence[str], hint: str | None) -> str:
    """Return the hint for a missing program: the user may have meant an image, as for `docker run`."""
    image, *program = argv
    told = (
        f"an image or template is an option: `atoll run --image {image} -- {' '.join(program) or 'PROGRAM'}`"
    )
    return f"{hint}; {told}" if hint else told
